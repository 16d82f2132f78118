from math import prod


def multiply(text):
    factors = [int(part) for part in text.split("*")]
    return str(prod(factors))


def run(question, tools):
    start = question.index(":") + 1
    end = question.index(".", start)
    text = question[start:end]
    return multiply(text)
