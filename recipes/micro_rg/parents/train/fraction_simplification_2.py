from fractions import Fraction
from re import split


def run(question, tools):
    words = question.split()
    target = words[words.index("fraction") + 1]
    before, a, middle, b, after = split(r"(\d+)", target)
    reduced = Fraction(int(a), int(b))
    result = f"{before}{reduced.numerator}{middle}{reduced.denominator}{after}"
    result = result.strip()
    return result
