def solve(line):
    import re
    from fractions import Fraction

    numbers = []

    def keep(match):
        numbers.append(Fraction(match.group()))
        return f"n[{len(numbers) - 1}]"

    code = re.sub(r"\d+\.?\d*", keep, line)
    return round(float(eval(code, {"n": numbers})), 9)


def run(question, tools):
    lines = [line for line in question.splitlines() if line.endswith("= ?")]
    out = str(solve(lines[0].removesuffix("= ?").strip()))
    return out
