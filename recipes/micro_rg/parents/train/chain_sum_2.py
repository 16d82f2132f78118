def run(question, tools):
    words = pieces(question)
    value = int(words.pop(0))
    while words:
        operator, number = words.pop(0), int(words.pop(0))
        value += {"+": number, "-": -number}[operator]
    reply = str(value)
    return reply


def pieces(question):
    left, _, _ = question.partition("=")
    return left[left.index(":") + 1 :].split()
