import re


def run(question, tools):
    expression = question.split(":")[1].split("\n")[0]
    code = expression.replace("×", "*").replace("÷", "/")
    code = re.sub(r"([\d.]+)i", r"\1j", code)
    z = complex(eval(code))
    sign = "-" if z.imag < 0 else "+"
    value = f"{z.real:.2f} {sign} {abs(z.imag):.2f}i"
    return value
