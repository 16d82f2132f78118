def run(question, tools):
    words = question.replace("binary", "base-2").replace("hexadecimal", "base-16").split()
    at = words.index("number", words.index("Now,"))
    old, new = (int(words[i].removeprefix("base-")) for i in (at - 1, at + 3))
    number = int(words[at + 1], old)
    text = write(number, new) or "0"
    text = text.lower()
    return text


def write(n, b):
    if n == 0:
        return ""
    digit = n % b
    return write(n // b, b) + (str(digit) if digit < 10 else chr(87 + digit))
