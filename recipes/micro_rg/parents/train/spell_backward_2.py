def mirror(word):
    letters = list(word)
    letters.reverse()
    return "".join(letters)


def run(question, tools):
    for line in question.splitlines():
        if line.startswith("Spell"):
            word = line.split(":")[-1].strip()
    spelled = mirror(word)
    spelled = spelled.strip()
    return spelled
