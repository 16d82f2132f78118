import re
from fractions import Fraction


def run(question, tools):
    dice, goal = re.search(r"dice: (.*?)\. .*rolling (\d+) or higher", question).groups()
    chances = {0: Fraction(1)}
    for sides in map(int, re.findall(r"d(\d+)", dice)):
        after = {}
        for total, chance in chances.items():
            for face in range(1, sides + 1):
                after[total + face] = after.get(total + face, 0) + chance / sides
        chances = after
    odds = sum(chance for total, chance in chances.items() if total >= int(goal))
    odds = str(odds)
    return odds
