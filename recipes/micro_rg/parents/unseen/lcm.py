import re


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def run(question, tools):
    multiple = 1
    for digits in re.findall(r"\d+", question):
        multiple = multiple * int(digits) // gcd(multiple, int(digits))
    reply = str(multiple)
    return reply
