import json
import re


def run(question, tools):
    words = json.loads(re.search(r"anagrams:\s*(\[.*?\])", question).group(1))
    groups = {}
    for word in words:
        groups.setdefault("".join(sorted(word)), []).append(word)
    answer = json.dumps(list(groups.values()))
    return answer
