import re


def run(question, tools):
    m = [[int(x) for x in row.split()] for row in re.findall(r"\n(\d[\d ]*)", question)]
    for step in re.findall("\n- .*", question):
        k, a, b, c, *_ = map(int, re.findall(r"\d+", step) + [0] * 4)
        for turns, name in enumerate(["H", "the d", "V", "cou"]):
            if name in step:
                m, k = m[::-1], 90 * turns
        for _ in range(k // 90):
            m = [*map(list, zip(*m[::-1], strict=True))]
        if "C" in step:
            m = [row[b - 1 : c] for row in m[k - 1 : a]]
        elif "Remove" in step:
            for line in [m] if "row" in step else m:
                del line[k - 1 :: k]
        else:
            m = [[a if x == k or ("S" in step and x % k < 1) else x for x in row] for row in m]
    out = "\n".join(" ".join(map(str, row)) for row in m)
    return out
