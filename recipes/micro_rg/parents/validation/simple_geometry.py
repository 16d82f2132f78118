import re


def missing_angle(text):
    known = [float(angle) for angle in re.findall(r"([\d.]+)°", text)]
    return 180 * (len(known) - 1) - sum(known)


def run(question, tools):
    angle = round(missing_angle(question), 1)
    result = str(int(angle) if angle == int(angle) else angle)
    result = result.strip()
    return result
