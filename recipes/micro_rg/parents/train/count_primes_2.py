def run(question, tools):
    numbers = [int(word) for word in question.split() if word.isdigit()]
    first, last = numbers[:2]
    sieve = [False, False] + [True] * last
    i = 2
    while i * i <= last:
        if sieve[i]:
            for multiple in range(i * i, last + 1, i):
                sieve[multiple] = False
        i += 1
    found = str(sieve[first : last + 1].count(True))
    return found
