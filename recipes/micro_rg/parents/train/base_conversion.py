import re

NAMES = {"binary": 2, "hexadecimal": 16}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def base(name):
    return NAMES.get(name) or int(name.split("-")[1])


def run(question, tools):
    source, number, target = re.search(r"convert the (\S+) number (\w+) to (\S+)", question).groups()
    value, answer = int(number, base(source)), ""
    while value:
        value, digit = divmod(value, base(target))
        answer = DIGITS[digit] + answer
    return answer
