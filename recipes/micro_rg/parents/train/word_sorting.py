import re


def run(question, tools):
    order, words = re.search(r"in (\w+) order \(.*list: (.*)", question).groups()
    ordered = sorted(words.strip().split(", "), reverse=order == "descending")
    answer = ", ".join(ordered)
    return answer
