def run(question, tools):
    task = question.split("task:\n")[1].split("=")[0]
    edges, ends = task.strip().split("/")
    back = {}
    for edge in edges.strip("|").split("|"):
        a, b = edge.split()
        back[b] = a
    start, node = ends.split()
    path = [node]
    while node != start:
        node = back[node]
        path.insert(0, node)
    route = " ".join(path)
    route = route.strip()
    return route
