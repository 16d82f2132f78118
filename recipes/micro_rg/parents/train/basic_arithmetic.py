import re


def run(question, tools):
    expression = re.search(r"Calculate (.+)\.", question).group(1)
    expression = expression.replace("/", "//")
    answer = str(eval(expression))
    return answer
