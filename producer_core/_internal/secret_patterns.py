"""Find secrets in texts: key formats of known services, and values that follow a secret name.

The formats are those of detect-secrets 1.5.0 (Yelp, Apache-2.0: AWS, Artifactory, Azure, Discord, GitHub, GitLab, npm,
OpenAI, PyPI, SendGrid, Slack, Square, Stripe, Telegram, Twilio, JWT, PEM) and, for others, from the services' own
documentation (Anthropic, Databricks, DigitalOcean, GitHub fine-grained, Google, Hashicorp, Hugging Face, Shopify). Each
pattern begins with a fixed word, and every repetition in it is bounded or ends the pattern, so that matching takes
linear time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from urllib.parse import unquote

from producer_core._internal.error_names import names_an_error

HIDDEN = "***"

_EDGE = r"(?<![A-Za-z0-9])"
_FORMATS = (
    r"(?<![_-])eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",  # JSON web token
    r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])",  # AWS access key id
    r"gh[pousr]_[A-Za-z0-9_]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"gl(?:pat|dt|rt|ft|soat|agent|ptt|imt|cbt|ffct|oas)-[A-Za-z0-9_-]{16,}",  # GitLab
    r"sk-(?:proj|svcacct|admin|ant|or)-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter
    r"sk-[A-Za-z0-9]{20,}",  # OpenAI, legacy
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}",  # Stripe
    r"whsec_[A-Za-z0-9+/=]{16,}",
    r"AIza[0-9A-Za-z_-]{30,}",  # Google API key
    r"ya29\.[0-9A-Za-z_-]{20,}",  # Google OAuth access token
    r"GOCSPX-[0-9A-Za-z_-]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",  # SendGrid
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[A-Za-z0-9_-]{50,}",
    r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}",  # Discord
    r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])",  # Mailchimp
    r"\d{8,10}:AA[0-9A-Za-z_-]{33}",  # Telegram
    r"(?:AC|SK)[a-f0-9]{32}(?![A-Za-z0-9])",  # Twilio
    r"AKC[A-Za-z0-9]{40,}",  # Artifactory
    r"sq0[a-z]{3}-[0-9A-Za-z_-]{22,}",  # Square
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"do[opr]_v1_[a-f0-9]{40,}",  # DigitalOcean
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",  # Shopify
    r"dapi[a-f0-9]{32}",  # Databricks
    r"hv[sb]\.[A-Za-z0-9_-]{20,}",  # HashiCorp Vault
)
_TOKEN = re.compile(
    rf"{_EDGE}(?:{'|'.join(_FORMATS)})"
    r"|(?<=hooks\.slack\.com/services/)[A-Za-z0-9_/]{10,}"
    r"|(?i:(?<=AccountKey=)|(?<=SharedAccessKey=))[A-Za-z0-9+/=]{20,}"
    r"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}-----|$)"
    r"|(?<=://)[^\s/@:]{0,128}:[^\s/@]{1,256}(?=@)"  # user and password in a URL
)
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_HEX = re.compile(r"[0-9a-f]{40}", re.I)

_NAME = (
    r"(?:password|passwd|passphrase|passcode|secret|token|api[_-]?key|credential|authori[sz]ation|cookie"
    r"|session_?id|private[_-]?key|access[_-]?key|signature|card_?(?:number|no|num)|jaas"
    r"|(?<![A-Za-z])(?:pwd|pin|cvv|cvc|ssn|iban|otp)(?![A-Za-z]))[\w.-]{0,40}"
)
_QUOTE = r"(?:\\{0,8}[\"'])"
_SCHEME = r"(?:bearer|basic|digest|negotiate|token|api-?key|apitoken|aws4-hmac-sha256|hmac|oauth)"
_SCHEME_NOUN = r"(?:authentication|authori[sz]ation|algorithms?|constraints)(?![A-Za-z0-9+/=_~-]|\.\w)"
_CREDENTIAL = re.compile(
    rf"\b(bearer|basic|digest|negotiate)\s{{1,8}}(?!{_SCHEME_NOUN})[A-Za-z0-9+/=._~-]{{6,}}", re.I
)
_AUTHORIZATION = re.compile(
    rf"(authori[sz]ation{_QUOTE}?\s{{0,8}}[=:,]\s{{0,8}}{_QUOTE}?{_SCHEME}\s{{1,8}})(?!\*\*\*)[^\s\"'\\<&]+",
    re.I,
)
_ASSIGNED = re.compile(
    rf"(?P<before>(?P<name>{_NAME}){_QUOTE}?\s{{0,8}}[=:]\s{{0,8}})"
    rf"(?!{_SCHEME}\s)"
    r"(?:[|>][+-]?\d?[ \t]{0,8}\r?\n(?P<block>(?:[ \t]+[^\n]*(?:\n|$))+)"  # a block of YAML
    r"|\\{1,8}\"(?:[^\"\\])*|\"(?:[^\"\\]|\\.)*(?:\"|$)|'[^']*(?:'|$)|[^\s,;&}<]+)",
    re.I,
)
_OPTION = re.compile(rf"((?<!\S)--?{_NAME}\s{{1,8}})(?!-)(?:\"[^\"]*(?:\"|$)|'[^']*(?:'|$)|[^\s,;]+)", re.I)
_ELEMENT = re.compile(
    r"(<(?P<name>[\w:.-]{1,64})(?:\s[^<>]{0,400})?>)(?:<!\[CDATA\[(?:[^\]]|\](?!\]>)){0,4096}\]\]>|[^<]{1,4096})(?=</)"
)
_NAMED = re.compile(
    r"(?P<before>\b(?:name|key|id|field)\s{0,4}=\s{0,4}[\"'](?P<name>[\w:. -]{1,64})[\"'][^<>]{0,200}?"
    r"\bvalue\s{0,4}=\s{0,4})(?:\"[^\"]{0,4096}\"|'[^']{0,4096}')",
    re.I,
)


def hide_secrets(text: str, is_secret: Callable[[str], bool]) -> str:
    """Replace everything that looks secret.

    Percent-encoding, invisible characters and full-width forms can hide a secret from the patterns. Such a text is
    returned in its plain form, with the secret replaced.
    """
    hidden = _hide(text, is_secret)
    for plain in _plain_forms(text):
        found = _hide(plain, is_secret)
        if found != plain and found.count(HIDDEN) > hidden.count(HIDDEN):
            hidden = found
    return hidden


def _plain_forms(text: str) -> list[str]:
    forms = []
    if "%" in text and (plain := unquote(text)) != text:
        forms.append(plain)
    if not text.isascii() and (plain := compatibility_form(text)) != text:
        forms.append(plain)
    return forms


def compatibility_form(text: str) -> str:
    """Return text in Unicode compatibility form (`ｐ` becomes `p`), without characters that have no width."""
    if text.isascii():
        return text
    return "".join(each for each in unicodedata.normalize("NFKC", text) if unicodedata.category(each) != "Cf")


def _hide(text: str, is_secret: Callable[[str], bool]) -> str:
    text = _TOKEN.sub(HIDDEN, text)
    text = _AWS_SECRET.sub(_aws_secret, text)
    text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    text = _CREDENTIAL.sub(rf"\1 {HIDDEN}", text)
    text = _hide_assigned(text)
    if "-" in text:
        text = _OPTION.sub(rf"\1{HIDDEN}", text)
    if "</" in text:
        text = _ELEMENT.sub(lambda found: found[1] + HIDDEN if is_secret(found["name"]) else found[0], text)
    if "value" in text.lower():
        text = _NAMED.sub(
            lambda found: f'{found["before"]}"{HIDDEN}"' if is_secret(found["name"]) else found[0], text
        )
    return text


def _hide_assigned(text: str) -> str:
    """Hide the values that follow a secret name. After the name of an error, only the secrets inside its text."""
    parts, done = [], 0
    while found := _ASSIGNED.search(text, done):
        parts.append(text[done : found.end("before")])
        done = found.end("before")
        if not names_an_error(text, found.end("name")):
            parts.append(HIDDEN + ("\n" if found["block"] else ""))
            done = found.end()
    return "".join(parts) + text[done:]


def _aws_secret(found: re.Match[str]) -> str:
    """Hide 40 base64 characters that are not a hash: an AWS secret access key has upper case, lower case and digits."""
    text = found[0]
    mixed = any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))
    return HIDDEN if mixed and not _HEX.fullmatch(text) else text
