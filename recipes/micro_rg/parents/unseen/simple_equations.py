import re


def run(question, tools):
    name, left, right = re.search(r"\b(\w)\b[^:]*: (.*) = (.*)", question).groups()
    at_zero, at_one = (eval(left, {name: x}) for x in (0, 1))
    solution = (int(right) - at_zero) // (at_one - at_zero)
    answer = str(solution)
    return answer
