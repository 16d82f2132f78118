import re


def search(start, goal, buttons):
    queue, seen = [(int(start), "red", [])], set()
    for number, light, path in queue:
        if number == int(goal):
            return " → ".join(path)
        if (number, light) in seen:
            continue
        seen.add((number, light))
        for name, verb, amount, when in buttons:
            if when in (light, "any"):
                k = int(amount)
                after = {"Add": number + k, "Subtract": number - k, "Multiply": number * k}[verb]
                queue.append((after, "green" if light == "red" else "red", [*path, name]))


def run(question, tools):
    start, goal = re.findall(r"(?:Start|Target): (-?\d+)", question)
    buttons = re.findall(r"(\w): (\w+) (\d+) \(when (\w+)\)", question)
    return search(start, goal, buttons)
