def run(question, tools):
    reply = tools.llm(question, max_tokens=512, temperature=0.0)
    return reply
