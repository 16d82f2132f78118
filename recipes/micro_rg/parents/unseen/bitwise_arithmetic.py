def run(question, tools):
    value = 0
    for line in question.splitlines():
        if line.startswith("("):
            value = eval(line)
    text = hex(value)
    text = text.lower()
    return text
