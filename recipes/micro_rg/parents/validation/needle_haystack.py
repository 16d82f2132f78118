def run(question, tools):
    story, _, rest = question.rpartition("Who ")
    fact = rest[: rest.index("?")]
    return who(story, fact)


def who(story, fact):
    for sentence in story.split(". "):
        name, _, said = sentence.strip().partition(" ")
        if said == fact:
            return name
    return ""
