"""stub"""
import re
from scheduler.cel.functions import function, regex_cost
def is_regex(p):
    try: re.compile(p)
    except re.error: return False
    return True
OVERLOADS = [
    *function("matches","string.(string) -> bool; (string, string) -> bool", lambda s,p: bool(re.search(p,s)), cost=regex_cost, is_guarded=False, costs_by_name=False),
    *function("find","string.(string) -> string", lambda s,p: (re.search(p,s) or [""])[0], cost=regex_cost),
    *function("findAll","string.(string) -> list(string); string.(string, int) -> list(string)", lambda s,p,n=-1: [m[0] for m in re.finditer(p,s)][:n if n>=0 else None], cost=regex_cost),
]
