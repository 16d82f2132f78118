import re


def run(question, tools):
    order, numbers = re.search(r"in (\w+) order: (.*)", question).groups()
    items = numbers.split(", ")
    items.sort(key=float, reverse=order == "descending")
    result = str(items)
    return result
