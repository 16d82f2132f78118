def run(question, tools):
    line = next(row for row in question.split("\n") if row.startswith("Reverse this list"))
    words = line.split(": ", 1)[1].split(", ")
    backwards = []
    while words:
        backwards.append(words.pop().strip())
    output = ", ".join(backwards)
    output = output.replace("  ", " ")
    return output
