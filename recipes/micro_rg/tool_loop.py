"""The fixed Python tool loop: a harness that no proposer wrote (a row of every table)."""

SOURCE = r'''def run(question, tools):
    prompt = question + "\n\nWrite a short Python program that prints the reply. Reply with the code only."
    reply = ""
    for _ in range(2):
        reply = tools.llm(prompt, max_tokens=256, temperature=0.0)
        code = reply.split("```")[1].removeprefix("python") if reply.count("```") > 1 else reply
        result = tools.python(code)
        if result.stdout.strip() and not result.error:
            return result.stdout.strip()
        prompt = prompt + "\n\n" + reply + "\n\nIt printed nothing: " + str(result.error)[-200:] + "\nMend it."
    return reply
'''
