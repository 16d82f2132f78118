from itertools import groupby


def run(question, tools):
    line = next(line for line in question.splitlines() if line.startswith('["'))
    words = sorted(line.strip('[]"').split('", "'), key=sorted)
    lists = [list(group) for _, group in groupby(words, key=sorted)]
    out = str(lists)
    out = out.replace("'", '"')
    return out
