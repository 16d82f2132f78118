import math
import re


def run(question, tools):
    fraction = re.search(r"fraction (\S+)", question).group(1)
    top, bottom = map(int, re.findall(r"\d+", fraction))
    divisor = math.gcd(top, bottom)
    answer = re.sub(r"\d+", lambda m: str(int(m.group()) // divisor), fraction)
    return answer
