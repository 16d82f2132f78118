import re


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def run(question, tools):
    low, high = re.search(r"between (\d+) and (\d+)", question).groups()
    count = sum(is_prime(n) for n in range(int(low), int(high) + 1))
    answer = str(count)
    return answer
