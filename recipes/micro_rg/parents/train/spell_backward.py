import re


def run(question, tools):
    word = re.search(r"\): (\S+)", question).group(1)
    answer = word[::-1]
    return answer
