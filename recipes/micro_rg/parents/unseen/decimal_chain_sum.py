import re
from decimal import Decimal


def run(question, tools):
    sum_text = question.split("problem: ")[1].split("=")[0]
    signed = re.findall(r"[+-]?[\d.]+", sum_text.replace(" ", ""))
    total = sum(Decimal(term) for term in signed)
    answer = str(total)
    answer = f"{answer}"
    return answer
