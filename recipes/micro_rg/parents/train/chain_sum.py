import re


def run(question, tools):
    problem = re.search(r"problem: (.*?)=", question).group(1)
    total = 0
    for sign, digits in re.findall(r"([+-]?)\s*(\d+)", problem):
        if sign == "-":
            total -= int(digits)
        else:
            total += int(digits)
    result = str(total)
    return result
