"""Small algorithms that moves copy into a harness, whole and as they stand here.

Each reads what it needs out of the question's text and returns the answer, or None where the question does not hold
it. They import what they use, so that a copy needs nothing around it. Written for what the train
families of ``envs/data/rg_split.toml`` ask, in the forms in which their scorers want it.
"""

from __future__ import annotations


def exact_value(question: str) -> str | None:
    import re
    from decimal import ROUND_HALF_UP, Context
    from fractions import Fraction

    for text in sorted(re.findall(r"[-+*/(). \d]+", question), key=len, reverse=True):
        text = text.strip(" .")
        if re.search(r"\d[ )]*[-+*/]", text) and "**" not in text and "//" not in text:
            try:
                value = eval(re.sub(r"\d+\.?\d*", r"Fraction('\g<0>')", text), {"Fraction": Fraction})
            except (SyntaxError, ValueError, ZeroDivisionError, TypeError):
                continue
            if value.denominator == 1:
                return str(value.numerator)
            rounded = Context(prec=12, rounding=ROUND_HALF_UP).divide(value.numerator, value.denominator)
            return f"{rounded.normalize():f}"
    return None


def lowest_terms(question: str) -> str | None:
    import math
    import re

    found = re.search(r"(\d+)\s*/\s*(\d+)", question) or re.search(r"frac\{(\d+)\}\{(\d+)\}", question)
    if not found or int(found[2]) == 0:
        return None
    top, bottom = int(found[1]), int(found[2])
    divisor = math.gcd(top, bottom)
    return f"{top // divisor}/{bottom // divisor}"


def primes_between(question: str) -> str | None:
    import re

    found = re.search(r"between (\d+) and (\d+)", question)
    if not found or int(found[2]) > 2_000_000:
        return None
    low, high = int(found[1]), int(found[2])
    is_prime = bytearray([0, 0]) + bytearray([1]) * high
    for n in range(2, int(high**0.5) + 1):
        if is_prime[n]:
            is_prime[n * n :: n] = bytes(len(range(n * n, len(is_prime), n)))
    return str(sum(is_prime[low : high + 1]))


def sorted_words(question: str) -> str | None:
    import re

    found = re.search(r"in (ascending|descending) order.*: *(.+)", question)
    if not found:
        return None
    words = [word.strip() for word in found[2].split(",")]
    return ", ".join(sorted(words, reverse=found[1] == "descending"))


def sorted_numbers(question: str) -> str | None:
    import re

    found = re.search(r"in (ascending|descending) order: *([-\d., ]+)", question)
    if not found:
        return None
    numbers = re.findall(r"-?\d+(?:\.\d+)?", found[2])
    return str(sorted(numbers, key=float, reverse=found[1] == "descending"))


def spelled_backward(question: str) -> str | None:
    import re

    found = re.search(r"backward.*: *(\S+)", question)
    return found[1][::-1] if found else None


def rotated_matrix(question: str) -> str | None:
    import re

    rows = [line.split() for line in question.split("\n") if re.fullmatch(r"[-\d ]*\d[-\d ]*", line)]
    degrees = re.search(r"(\d+) degrees", question)
    if not rows or not degrees or len({len(row) for row in rows}) > 1:
        return None
    for _ in range(int(degrees[1]) // 90 % 4):
        rows = [list(row) for row in zip(*rows[::-1], strict=True)]
    return "\n".join(" ".join(row) for row in rows)


def converted_base(question: str) -> str | None:
    import re

    found = re.search(r"the (\S+) number (\w+) to ([\w-]+)", question)
    if not found:
        return None
    names = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
    try:
        base, target = (names.get(name) or int(name.removeprefix("base-")) for name in (found[1], found[3]))
        number = int(found[2], base)
    except ValueError:
        return None
    if not 2 <= target <= 36:
        return None
    digits = ""
    while number:
        number, digit = divmod(number, target)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def caesar_plain(question: str) -> str | None:
    import re

    found = re.search(r"text: ([A-Z][A-Z ]*)", question)
    if not found:
        return None
    common = " THE OF AND TO IN IS IT HE WAS FOR ON ARE AS WITH HIS THEY AT BE THIS FROM OR BY HAD NOT BUT A I "

    def shifted(by: int) -> str:
        return "".join(chr((ord(c) - 65 - by) % 26 + 65) if c != " " else c for c in found[1])

    def score(text: str) -> float:
        letters = sum("ZQXJKVBPYGFWMUCLDRHSNIOATE".index(c) for c in text if c != " ") / len(text)
        return letters + 20 * sum(f" {word} " in common for word in text.split()) / len(text.split())

    return max((shifted(by) for by in range(26)), key=score)


def grouped_anagrams(question: str) -> str | None:
    import json
    import re

    found = re.findall(r"^\[.*\]$", question, re.MULTILINE)
    try:
        words = json.loads(found[-1])
        groups: dict[str, list[str]] = {}
        for word in words:
            groups.setdefault("".join(sorted(word)), []).append(word)
    except (IndexError, ValueError, TypeError):
        return None
    return json.dumps(list(groups.values()))
