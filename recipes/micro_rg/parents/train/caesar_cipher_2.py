RARE = "ZQXJKVBPYGFWMUCLDRHSNIOATE"


def run(question, tools):
    secret = question.split("text: ")[1].split(". Provide")[0]
    best, result = -1, secret
    for step in range(26):
        table = str.maketrans(ALPHABET, ALPHABET[step:] + ALPHABET[:step])
        plain = secret.translate(table)
        score = sum(RARE.find(letter) for letter in plain)
        if score > best:
            best, result = score, plain
    result = result.strip()
    return result


ALPHABET = "".join(sorted(RARE))
