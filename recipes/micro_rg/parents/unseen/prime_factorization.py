import re


def factorize(n):
    d = 2
    while n > 1:
        while n % d == 0:
            yield str(d)
            n //= d
        d += 1


def run(question, tools):
    number = int(re.search(r"factorization of (\d+)", question)[1])
    answer = " × ".join(factorize(number))
    answer = answer.replace("  ", " ")
    return answer
