import re


def roots(f):
    step = 1 / 64
    a = f(-400)
    for k in range(-400 * 64, 400 * 64):
        x = k * step
        b = f(x + step)
        if a == 0:
            yield x
        elif a * b < 0:
            yield x - step * a / (b - a)
        a = b


def run(question, tools):
    polynomial = re.search(r":\s*(.*) = 0", question).group(1)
    name = re.search("[a-z]", polynomial).group()
    f = eval(f"lambda {name}: {polynomial}")
    result = ", ".join(str(round(root, 4)) for root in roots(f))
    return result
