import re


def calculate(line):
    parts = []
    for token in re.findall(r"\d+|[-+*/()]", line):
        parts.append("//" if token == "/" else token)
    return eval(" ".join(parts))


def run(question, tools):
    line = question.split("\n")[0]
    value = calculate(line)
    text = f"{value}"
    text = text.strip()
    return text
