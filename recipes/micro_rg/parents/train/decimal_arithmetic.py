import re
from decimal import Decimal, localcontext


def run(question, tools):
    expression = re.search(r"^(.+) = \?", question, re.MULTILINE).group(1)
    source = re.sub(r"[\d.]+", r"Decimal('\g<0>')", expression)
    with localcontext() as context:
        context.prec = 12
        value = eval(source, {"Decimal": Decimal})
    answer = str(value)
    answer = answer.strip()
    return answer
