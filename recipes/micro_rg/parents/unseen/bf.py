import re


def execute(code):
    tape, at, i, written, stack = [0] * 999, 0, 0, "", []
    while i < len(code):
        c = code[i]
        if c in "<>":
            at += 1 if c == ">" else -1
        elif c in "+-":
            tape[at] = (tape[at] + (1 if c == "+" else -1)) % 256
        elif c == ".":
            written += chr(tape[at])
        elif c == "[":
            stack.append(i)
        elif tape[at]:
            i = stack[-1]
        else:
            stack.pop()
        i += 1
    return written


def run(question, tools):
    code = re.search(r"^[-+<>.\[\]]+$", question, re.MULTILINE).group()
    return execute(code)
