from collections import Counter


def run(question, tools):
    tail = question.split("following letters:")[1]
    letters = Counter(tail.strip().splitlines()[0].split(", "))
    half = "".join(letter * (count // 2) for letter, count in letters.items())
    middle = "".join(letter for letter, count in letters.items() if count % 2)
    out = half + middle + half[::-1]
    return out
