RULES = {"A# #A": "", "B# #B": "", "A# #B": "#B A#", "B# #A": "#A B#"}


def run(question, tools):
    program = question.split("following program:")[1].split("Return")[0]
    state, previous = " ".join(program.split()), None
    while state != previous:
        previous = state
        for pair, new in RULES.items():
            state = " ".join(state.replace(pair, new).split())
    return state
