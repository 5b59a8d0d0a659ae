"""Cue words of sentences: rules, tasks, decisions, failures, values.

Only tables and patterns, each for one sentence in lower case with straight apostrophes. English is
covered broadly; a dozen other languages by their most common forms. A match is one reason among
others to keep a sentence (`salience`). Patterns have no nested repetition, so a search is linear in
the (bounded) sentence. This module does not know the effect of a match.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from ullage.core.facts.patterns import BeyondAscii, LatePattern, group_branches


class CuePattern(LatePattern):
    """A pattern that matches any of several alternatives as whole words."""

    def __init__(self, *alternatives: str) -> None:
        super().__init__("")
        self.alternatives = alternatives

    @cached_property
    def source(self) -> str:
        """Source of the pattern."""
        return rf"\b(?:{group_branches(self.alternatives)})(?!\w)"


def join_cues(*patterns: CuePattern) -> CuePattern:
    """Return a pattern that matches whatever one of these does."""
    return CuePattern(*(one for known in patterns for one in known.alternatives))


_LEAD: Final = (
    r"^(?:(?:please|pls|plz|also|and|so|then|but|ok|okay|just|oh|btw|fyi|one more thing"
    r"|important|note"
    r"|remember|[\w ]{1,30}:"
    r"|for [^,]{1,60},|in [^,]{1,60},|on [^,]{1,60},|when [^,]{1,60},|scratch that|actually|again"
    r"|hey|first)[,:]? )"
    r"{0,3}"
)

PROHIBITS: Final = CuePattern(
    r"never",
    r"must(?:n't| not| never)",
    r"(?:can|may|might|should|shall|would|could|will|ought)(?:n't|not| not| never)",
    r"can't|won't",
    r"(?:isn't|aren't|not) (?:fine|ok|okay|acceptable|for you|yours)",
    r"(?:not|no) (?:be )?(?:fine|ok|okay|yours?|ours|permission|allowed|permitted|acceptable"
    r"|welcome|an option|to be|to \w+)",
    r"(?:aren't|isn't) (?:allowed|permitted|to be|an option|acceptable)",
    r"forbidden|prohibited|banned|disallowed|deprecated|taboo|no[- ]go|off[- ]limits",
    r"hands off|refrain|avoid|steer clear|keep clear",
    r"(?:under|in|on) no (?:circumstances?|conditions?|case|account|event)",
    r"no longer",
    r"(?:stay|keep|stays|keeps) (?:away|out|off|clear)",
    r"(?:hands|fingers|paws|nose) (?:off|out|away)",
    r"leave .{1,80}? (?:alone|untouched|unchanged|be|in peace|as)",
    r"untouched|unchanged|unmodified|intact|frozen|locked|read-only",
    r"(?:stays?|remains?) (?:as|the way)",
    r"rather (?:you |we |they )?(?:didn't|not)",
    r"don't (?:want|like|accept|allow|use|do|need|support|merge|ship|deploy|take)",
    r"there (?:will|must|should|may|can|is to) be no",
    r"not (?:supposed|meant) to"
    r"|no one|nobody|out of scope|has no business|have no business|(?:is|are) a no",
)
"""Worth 3: a prohibition."""

FORBIDS: Final = LatePattern(
    r"(?:^|[,;:.(] ?|- |\b(?:please|and|but|so|then|also|just|really|or) )(?:do not|don't|dont)\b"
)
"""Worth 3: a negative imperative, not the negation inside a report ("they don't")."""

_DENYING: Final = "no|nothing|none|neither|without|zero|skip|ignore|exclude|stop|quit|drop"
FORBIDDING: Final = ("do not", "don't", "dont")
"""One of these is in every match of `FORBIDS`."""

DENIES: Final = LatePattern(rf"{_LEAD}(?:{_DENYING})\b")
"""Worth 2: a sentence that opens with a negation."""

OBLIGES: Final = CuePattern(
    r"must|always|shall|mandatory|obligatory|compulsory|required|require|requires",
    r"(?:has|have|needs?|ought|is|are) to",
    r"make (?:sure|certain)|be sure to|be careful|ensure|see to it|take care",
    r"from (?:now|here|today) on|from this point|going forward|henceforth|in (?:the )?future",
    r"(?:every|each) time|whenever|at all times|without exception",
    r"insists?|(?:important|crucial|essential|vital|critical|imperative)(?: that| to|:|,)",
    r"rules?|constraints?|conventions?|polic(?:y|ies)|guidelines?|requirements?",
    r"(?:keep|bear) in mind|remember|don't forget that|note that|mind that",
    r"you(?:'ll| will) (?:want|need|have) to|you are to",
)
"""Worth 3: a demand that outlasts the moment."""

URGES: Final = CuePattern(
    r"should|only|prefer|preferably|rather than|instead of|stick to|at (?:most|least)",
    r"no (?:more|less|fewer|later|earlier) than|maximum|minimum|max|min|up to|within",
    r"limit(?:ed)?|cap(?:ped)?|restrict(?:ed)?|reserved|upper bound|no newer|or newer",
    r"wait for|before you|without asking|ask (?:me|first|before)",
    r"by default|(?:may|can) only|approv(?:e|es|al|als)|sign-?off|backwards? compatible",
    r"consistent(?:ly)?|strictly|exactly|exclusively|standard|style|sacred|under \d+",
)
"""Worth 2: a limit, a preference, a custom."""

_COMMANDING: Final = (
    r"use|match|mirror|verify|put|place|copy|focus|flag|type"
    r"|declare|import|export|adhere|obey|store|split|go (?:through|via|for)|hands|run only|keep"
    r"|prefer|stick|stay|pin|limit|cap|respect|follow|treat|assume"
    r"|answer|reply|respond|speak|talk|preserve|format|indent|name|log|remember|note|ensure"
    r"|target|support|default|restrict|wrap|round|work (?:on|in|only)|leave|ask|stop|honou?r"
    r"|commit|tag|retry|sign|quote|cite|deploy|guard|mark|measure|validate"
)
COMMANDS: Final = LatePattern(rf"{_LEAD}(?:always )?(?:{_COMMANDING})\b")
"""Worth 2: an imperative that sets a custom, unlike "fix", "add", "show" or "run"."""

COMMANDS_WITHIN: Final = LatePattern(
    rf"[,;] (?:(?<=, )(?:so |please |and )?|(?<=; ))(?:{_COMMANDING})\b"
)
"""The same at the start of a clause; if both match, the worth counts once."""

_IF: Final = (
    "if|when|whenever|whatever|wherever|however|no matter|before|after|once|while|until|unless"
    "|as soon as|every time|each time|as long as"
)
CONDITION: Final = LatePattern(
    rf"{_LEAD}(?:{_IF})\b(?! that,)[^,]{{1,140}}, "
    r"(?!i\b|he\b|she\b|it was\b|we (?:saw|had|were)\b)"
)
"""Worth 2: an action under a condition."""

PREFERS: Final = LatePattern(
    r"\b(?:i(?:'d| would)? (?:really |strongly |much |also )?(?:like|prefer|want|rather|love|expect"
    r"|insist|need you|don't want|do not want|don't like|won't accept)"
    r"|we(?:'d| would)? (?:really |only |always |never |do not |don't )?(?:prefer|want|use|write|go"
    r"|stick|require|follow|support|target|ship|keep|deploy|format|test|name|commit|merge|accept"
    r"|allow|tag|expect|speak|need|do|run)"
    r"|our (?:convention|policy|standard|style|rule|custom|practice|default))\b"
)
"""Worth 2: the taste or habit of the user or the team."""

MATTERS: Final = CuePattern(
    r"hates?|unhappy|annoy(?:s|ed|ing)?|upset|disaster|angry|furious|kill me|trouble|dangerous"
    r"|fragile|sensitive|sacred|set in stone|carved in stone|untouchable|in scope|not ours"
    r"|(?:somebody|someone|nobody) else's|belongs? to (?:another|someone|somebody|the)"
    r"|is (?:live|production|legacy)|i'm not a|i am not a|my (?:okay|ok|go|approval|consent)",
)
"""Worth 2: a feeling, an owner or a state that is an implicit demand."""

REMINDS: Final = CuePattern(
    r"(?:keep|bear) (?:(?:all )?th(?:at|is|ese|ose)|it|them) in mind|bear in mind|keep in mind"
    r"|(?:please|always) remember|remember (?:that|this|it)|(?:do not|don't|dont|never) forget"
    r"|(?:just )?so you know|for your information|for future reference"
    r"|note (?:for|to) (?:you|yourself)|remind me (?:if|when|that|of)|hold me to (?:it|that|this)",
    r"(?:(?<=[,;:(] )|(?<=\band )|(?<=\bbut )|(?<=\bso ))"
    r"please (?:do not|don't|dont|never|always|no)",
    r"(?:merk|behalt|notier)\w{0,3} (?:dir|das|es)|denk\w{0,2} (?:bitte )?daran"
    r"|vergiss (?:\w+ )?nicht|bitte (?:nicht|nie|niemals|kein\w{0,2}|immer)|zur info",
    r"n'oublie[sz]? pas|garde[rz]? \w+ en tête|retiens|retenez|souviens-toi|notez? bien|pour info",
    r"tenlo en cuenta|ten (?:en cuenta|presente)|recuérdalo|recuerda que|acuérdate"
    r"|no (?:lo )?olvides|lembra-te|não (?:te )?esqueças?|tieni (?:presente|a mente)"
    r"|ricorda(?:ti)? che|non dimenticare",
)
"""Worth 5: a request to remember something, or a rule in the middle of a story."""

SAYS_NO: Final = LatePattern(
    r"(?:^|, |; |\b(?:pls|please|but|and) )no (?!one\b|i\b|we\b|it\b|that\b|the\b)\w"
    r"|, (?:so )?(?:not?|nothing|none) \w|^not \w"
)
"""Worth 2: "no emojis", "tabs, not spaces"."""

STATES: Final = LatePattern(
    r"^(?:the|that|this|these|those|our|all|\S*[/._]\S*|[a-z]+s?)\b.{0,60}? (?:is|are|has|have"
    r"|runs?"
    r"|goes|live?s|keeps?|uses?|belongs?|contains?)(?!\w)(?! (?:that|now|strange|clear|red|green"
    r"|nice"
    r"|good|great|fine|fixed|done|quick|loud|broken|back|what|why|how|exactly|the same|there)\b)"
)
"""Worth 1: a plain statement about how things are."""

STATING: Final = (
    *(" is", " are", " ha", " run", " goes", " liv", " keep", " use", " belong", " contain"),
)
"""One of these is in every match of `STATES`."""

_ONCE: Final = (
    r"show|explain|tell me|look|fix|add|run|write|read|open|check|list|find"
    r"|summari[sz]e|describe|give|create|implement|refactor|help|try|start|continue|go on|update"
    r"|rename|delete|remove|build|test|compare|print|search|thanks?|great|nice|let's|let us|see"
    r"|have a look|take a look|investigate|debug|review|rerun|explore|draft|generate|convert|gimme"
    r"|(?:name|suggest|recommend|teach|give) (?:me|us|an?|some|one|two|three|four|five|\d{1,2})"
    r"|(?:translate|shorten|rewrite|rephrase|reword) (?:this|that|it|these|the following)"
)
ASKS_ONCE: Final = LatePattern(rf"{_LEAD}(?:now )?(?:{_ONCE})\b")
"""Worth -2 unless a cue worth 3 or a limit matches too: a request to do something now, once."""

ASKS: Final = LatePattern(
    _LEAD + r"(?:(?:what|how|why|who) (?:do|does|did|would|could)(?! not)"
    r"|(?:do|does|did|am|is|are|was|were) (?:i|you|we|they|he|she|there|people|anyone|anybody))\b"
)
"""A question, with or without a mark at its end: in English its first words show it."""

DISTRIBUTES: Final = LatePattern(_LEAD + r"(?:every|each|any|all) \w")
"""Worth 1 more: a sentence about each of its subjects."""

OPENS: Final = LatePattern(
    f"{_LEAD}(?:"
    + group_branches([_DENYING, _COMMANDING, _IF, _ONCE, "always|now|every|each|any|all"])
    + r")\b"
)
"""Tells whether a sentence opens with one of these after its lead: most do not."""

EMBRACES: Final = CuePattern(
    r"every|each|all|any|anything|everything|anyone|everyone|both|except|unless|without|apart from",
    r"other than|beyond|until",
)
"""Worth 1: a quantifier or an exception."""

PLACES: Final = CuePattern(
    r"(?:for|in|throughout|across) (?:this|the|our|that) (?:project|repo|repository|code ?base"
    r"|team|company|module|package|service|session|task|conversation)",
    r"everywhere|throughout|here|in general|per (?:minute|second|hour|day|shard|user|request|file)",
)
"""Worth 1: the place of a custom."""

HABITS: Final = CuePattern(
    r"(?:goes|go|lives?|belongs?|stays?|remains?|comes?|is|are|runs?|uses?) (?:in|into|next to"
    r"|under|behind|before|after|written|formatted|generated|named|only|first|last|lower|upper"
    r"|always|never|through|via|with|on|at|by)",
    r"may|goes|lives?|belongs?",
)
"""Worth 1: the timeless present of a custom."""

IDIOMS: Final = CuePattern(
    r"never ?mind|no (?:worries|rush|hurry|problem|idea|doubt|wonder|luck|clue|pressure|need"
    r"|thanks|matter|offen[cs]e|surprise)",
    r"(?:don't|do not|dont) (?:worry|mind|bother|panic|sweat|know|think|remember|understand|see"
    r"|get me wrong|you think)",
    r"must(?:'ve| have| be (?:the|joking|kidding|nice|something|some|because|due|tired|a))",
    r"(?:should|would|could|might)(?:'ve|n't have| have| not have)|can't have",
    r"should be (?:fixed|fine|there|back|working|done|ready|green|better|okay|ok|good|enough|easy)",
    r"(?:there|that|it|this) must be|you (?:always|never) (?!have|need|must|want|run|use|do)\w+",
    r"maybe|perhaps|somehow|apparently|i (?:believe|think|guess|suppose)|seems?|looks like",
    r"can ignore|no stack trace|without a (?:stack trace|problem|hitch|clue)",
    r"(?:that|this|it|which) should (?:do|work|help|be (?:it|fine|enough|all|ok|okay|good))",
    r"can't (?:wait|believe|remember|tell|complain|blame|help|recall|see|find)",
    r"(?:can|could)(?:'t|not) (?:reproduce|remember)|not sure|as always|as usual|of course",
)
"""Worth -4: small talk in the words of rules."""

NARRATES: Final = LatePattern(
    r"^(?!.{0,200}, so )(?:and |but |so |well,? |also |because |sorry,? |oh,? |hm+,? |yes,? "
    r"|no,? )?"
    r"(?:i(?!'d|'ll want)|i'm|i've|he|she|they|my \w+|someone|somebody|he's|she's|the old \w+)\b"
    r"(?! (?:want|wants|would|prefer|insist|expect|like|love|really (?:want|like|prefer)"
    r"|strongly|need(?! to)|can't have|cannot have|can't accept|(?:really )?(?:don't|do not)"
    r" (?:want|like)|won't accept|always want|also))"
    r"(?! (?:am|'m) not an? )"
)
"""Worth -4: a story about somebody, without a verb of wishing."""

PAST: Final = LatePattern(
    r"^(?:and |but |so |well,? )?(?:i|we|he|she|it|they|that|this|there|nobody|the \w+|my \w+)"
    r"(?: (?:never|always|only|just|also|still|already|really|all)){0,2}"
    r" (?:was|were|had|did|didn't|took|found|went|saw|said|thought|came|got|forgot|knew|felt|ran"
    r"|broke|made|gave|told|left|lost|understood|got|wrote|read|\w{2,20}ed)\b"
)
"""Worth -3: a report."""

PLEADS: Final = LatePattern(
    r"^(?:please,? )?(?:can|could|would|will) (?:you|we) (?:please |also |just ){0,2}"
    r"(?:always|never|make sure|keep|avoid|stop|not|stick|ensure|only)\b"
)
"""Worth 2, and marks a question as a rule in polite form."""

LATIN: Final = CuePattern(
    # German
    r"niemals?|nie|immer|muss|musst|müssen|müsst|darfst?|dürfen|sollst?|sollen|sollten?|auf keinen"
    r" fall|keinesfalls|unter keinen umständen|verboten|ab jetzt|ab sofort|künftig|achte darauf"
    r"|stelle? sicher|vermeide[nt]?|höchstens|mindestens|bitte (?:nicht|nur|kein\w*)|finger weg"
    r"|nicht (?:anfassen|ändern|verwenden|benutzen|löschen)|unbedingt|pflicht",
    # French
    r"jamais|toujours|doit|doivent|devez|dois|il faut|ne \w+ pas|n'\w+ pas|ne pas|interdite?s?"
    r"|désormais|dorénavant|évite[rz]?|veille[rz]? à|assure-toi|assurez-vous|obligatoire|sauf"
    r"|au (?:plus|maximum|moins)|uniquement",
    # Spanish
    r"nunca|jamás|siempre|debe[ns]?|debes|hay que|tienes? que|tienen que|prohibid[oa]s?|evitar?"
    r"|a partir de ahora|asegúrate|asegúrese|evite|obligatori[oa]|como (?:máximo|mínimo)|excepto"
    r"|no (?:uses|toques|cambies|modifiques|borres|añadas|hagas|llames|puedes|se (?:puede|debe))"
    r"|únicamente|salvo",
)
"""Worth 3: prohibitions and obligations of other languages in their most common forms."""

_SCRIPTS: Final = (
    # Russian
    r"никогда|всегда|нельзя|должн|необходимо|обязательно|запрещ[её]н|избегай|впредь|отныне"
    r"|не (?:трогай|меняй|используй|удаляй|изменяй|нужно|надо|более|менее)|убедись|следи"
    # Chinese
    r"|不要|不得|不能|不可|不准|禁止|切勿|请(?:勿|用|使用|保持|始终|不)|别[动改碰用删]|必须|务必"
    r"|一定要|始终|总是|永远|只[能用]|以后|从现在起|确保|避免|最多|至少|应[该当]|记住|注意|除非"
    r"|不[许喜]|[别勿](?!的)|要求|我[要喜]|宁[可愿]|绝对|千万|得[放留先]"
    # Korean
    r"|마세요|마십시오|말아|지 마|금지|반드시|항상|절대|해야|하면 안"
    r"|만 (?:사용|허용)|부탁|원합니다|까지"
    # Arabic
    r"|يجب|ممنوع|لا (?:ت|بد|يجوز)|أبدا|دائما|أريد|أفضل|من فضلك"
    # Hindi
    r"|मत|न (?:करें|हो|दें|जाए)|नहीं (?:कर|चाहिए|हो(?:गा|ना))|ज़रूरी|जरूरी|चाहिए|हमेशा|मना|कृपया"
    # Russian, its wishes
    r"|хочу|хотим|предпочита|пожалуйста|не (?:раньше|позже|ранее|позднее)|пока не"
    r"|не .{1,20}(?:ть|ться)\b"
    # Japanese
    r"|ください|てほしい|がいい|たくない|しないで|ないでください|てはいけ|てはなら|ではいけ|必ず|常に|いつも|べき"
    r"|なければなら|今後|これから|避けて|だけ[使を]|以[内下上]|確認して|注意"
)
SCRIPTS: Final = BeyondAscii(_SCRIPTS)
"""Worth 3: the same in other scripts; searched only if a sentence has a letter of one."""

SCRIPTS_LIMIT: Final = BeyondAscii(
    r"только|лучше|остаётся|остается|希望|想要|之前|فقط|قبل أن|إلا|केवल|सिर्फ|से पहले|まで[にはの]"
    r"|前に|のみ"
)
"""Worth 2: a limit or a wish, as `LIMITS_ELSEWHERE`."""

SCRIPTS_DENY: Final = BeyondAscii(r"без |不[行会想]|都不|لا (?:ي|أ)|بدون|नहीं|बिना|कभी")
"""Worth 1: a negation, as `DENIES_ELSEWHERE`: people use it in stories, too."""

FIRST_SCRIPT: Final = "\u0400"
"""The first character of these scripts: a sentence without this or a higher one has none of
them."""

DENIES_ELSEWHERE: Final = CuePattern(
    r"nicht|keine?[nmrs]?|ohne|nichts|niemand(?:en|em)?|kein\w* einzige\w*",
    r"ne|n'\w+|pas|sans|aucune?|personne|rien",
    r"nada|nadie|ning[uú]n[ao]?|sin que|tampoco",
    r"n[ãa]o|nenhum[a]?|sem|ningu[ée]m|non|senza|nessun[oa]?|niet|geen|zonder|nie wolno|bez|nikt",
)
"""Worth 1: a negation of other languages that is not an English word."""

LIMITS_ELSEWHERE: Final = CuePattern(
    r"nur|erst (?:wenn|nach|ab)|bevor|solange|au[sß]er|sp[äa]testens|fr[üu]hestens|bis zum?"
    r"|statt|lieber|am liebsten|bitte|(?:ich|wir) (?:m[öo]chten?|will|wollen|brauchen?|bevorzugen?)"
    r"|geh(?:t|ört|ören) (?:in|an|auf|zu)|bleib(?:t|en)",
    r"seulement|avant (?:de|que|le|la)|tant que|plut[ôo]t|au lieu|s'il (?:te|vous) pla[îi]t"
    r"|(?:je|nous|on) (?:veux|voulons|veut|voudrais|pr[ée]f[èe]re|pr[ée]f[ée]rons|souhaite)"
    r"|rester?|reste(?:nt)?",
    r"s[óo]lo|solamente|antes (?:de|que)|mientras|en (?:vez|lugar) de|por favor|hasta"
    r"|(?:yo )?(?:quiero|prefiero|queremos|preferimos|quisiera|necesito)|se queda[n]?",
    r"somente|apenas|em vez de|(?:eu )?(?:quero|prefiro|queremos)|solo|soltanto|prima (?:di|che)"
    r"|invece|voglio|preferisco|vorrei|alleen|liever|voordat|alsjeblieft|tylko|proszę|zanim",
)
"""Worth 2: a limit, a wish or a preference of other languages, in their most common forms."""

SPEAKERS: Final = CuePattern(
    r"i|i'\w+|me|my|mine|we|we'\w+|us|our|ours|please|let's",
    r"ich|mir|mich|mein\w*|wir|uns|unser\w*|bitte",
    r"je|j'\w+|moi|mon|ma|mes|nous|notre|nos",
    r"yo|mis?|m[íi][oa]s?|nosotr[oa]s|nuestr[oa]s?|eu|meus?|minhas?|noi|nostr[oaie]|ik|mijn|wij|ons",
    r"quiero|tengo|soy|estoy|necesito|prefiero|puedo|creo|queremos|tenemos|somos|estamos|necesitamos",
    r"quero|tenho|sou|estou|preciso|prefiro|posso|acho|temos|precisamos|voglio|vorrei|devo|ho|penso",
    r"preferisco|abbiamo|vogliamo|dobbiamo|mam|chcę|jestem|muszę|mogę|wolę|\w+ł[ea]m|mnie|m[óo]j|moj[aeą]",
    r"nasz\w*|ben|benim|bana|bende|bizim|bize",
    r"я|мне|меня|мо[йяеи]|мы|нам|нас|наш\w*|хочу|могу|буду|прошу|пожалуйста",
    r"أنا|لي|عندي|لدي|معي|مني|أريد|أحب|نحن|لنا|لدينا|عندنا|من فضلك",
    r"मैं|मैंने|मुझे|मेर[ाीे]|हम(?![\u0900-\u097f])|हमें|हमने|हमार[ाीे]|कृपया",
)
"""Words that people use for themselves or for a request."""

ONESELF: Final = CuePattern(
    r"i|i'\w+|me|my|mine|ich|mir|mich|mein\w*|je|j'\w+|moi|mon|mes|yo|mi|mis|m\u00edo|io|mio|mia",
    r"miei|eu|meus?|minhas?|ik|mijn|\u044f|\u043c\u043d\u0435|\u043c\u0435\u043d\u044f|\u043c\u043e[\u0439\u044f\u0435\u0438]|mnie|mi|m\u00f3j|moja|moje|jestem",
    r"quiero|tengo|soy|estoy|necesito|prefiero|puedo|quero|tenho|sou|estou|preciso|prefiro|posso",
    r"voglio|vorrei|devo|ho|mam|chcę|muszę|mogę|wolę|\w+ł[ea]m|хочу|могу|буду|ben|benim|bana|bende",
)
"""Words that one person uses for themselves."""

ONESELF_UNSPACED: Final = BeyondAscii(r"\u6211|\u79c1|\u4ffa|\u50d5")
"""The same in scripts without spaces."""

ADDRESSED: Final = CuePattern(
    r"you|you'\w+|your|yours|du|dir|dich|dein\w*|vous|votre|vos|tu|toi|usted(?:es)?",
    r"ты|тебе|вы|вам|вас|ваш\w*",
)
"""Words that address somebody: manuals have them, too."""

SPEAKERS_UNSPACED: Final = BeyondAscii(
    r"我|咱|私|僕|俺|うち[のはが]|ください|저[는희의]|나는|제[가 ]|우리|주세요"
)
"""The same as `SPEAKERS` in scripts without spaces."""

ADDRESSED_UNSPACED: Final = BeyondAscii(r"你|您|あなた|당신")
"""The same as `ADDRESSED` in scripts without spaces."""

TREATS: Final = CuePattern(
    r"rewrite|rephrase|reword|paraphrase|translate|summari[sz]e|sum (?:\w+ )?up|shorten",
    r"proofread|explain|review|analy[sz]e|critique|polish|correct|clean (?:this |it )?up|extract",
    r"(?:reply|respond) to",
    r"answer (?:to|this|these|the|him|her|them)|(?:a|my|the|your) (?:reply|answer|response) to",
    r"übersetz\w*|zusammenfass\w*|fass\w* .{1,40} zusammen|kürze|umschreib\w*|erklär\w*|prüf\w*",
    r"korrigier\w*|antworte auf|tradui[srtz]\w*|résume[rz]?|reformule[rz]?|corrige[rz]?",
    r"explique[rz]?|traduc[ei]\w*|resum[ei]\w*|reescrib\w*|explica\w*|traduzi\w*|riassum\w*|spiega",
    r"переведи\w*|перескажи\w*|сократи\w*|исправь\w*|объясни\w*",
)
"""A request to process a text: rewrite, translate, explain."""

TREATS_UNSPACED: Final = BeyondAscii(
    r"翻译|总结|概括|改写|润色|解释"
    r"|翻訳|要約|書き直|校正|説明して"
)
"""The same in scripts without spaces."""

POINTS: Final = CuePattern(
    r"(?:this|these|the following|below|attached|pasted)",
    r"dies(?:e[nmrs]?)?|folgende[nmrs]?|ce(?:t|tte|s)?|ci-dessous|suivante?s?|est[aeo]s?|siguientes?",
    r"это\w?|эт[аиу]|quest[oaie]|ist[oa]|tak(?:ie|i|ą|a)|dit|deze",
)
"""Words that point to a text: it follows."""

POINTS_UNSPACED: Final = BeyondAscii(r"这[个封篇段份]|以下|下面|この|これ")
"""The same in scripts without spaces."""

STATES_RULE: Final = 2
"""A sentence needs this worth to be taken as a rule; tuned on the set `SEEN` of
tests/fidelity.py."""

LIFTS: Final = CuePattern(
    r"(?:may|can|could)(?!'t|not| not| never) (?:now |again )?.{1,80}? (?:again|now|after all)",
    r"(?:is|are|it's|that's) (?:now )?(?:allowed|fine|ok|okay|permitted|unfrozen|free|safe|open)"
    r"(?: to \w+)?(?: now| again)?",
    r"feel free to|go ahead and|no need to|(?:ban|freeze|rule|restriction|limit).{0,60}? lifted",
    r"(?:no longer|don't|do not|needn't) (?:need to|have to|applies|apply)",
    r"no longer (?:forbidden|frozen|off[- ]limits|banned|required|necessary|needed|applies|true"
    r"|locked|a problem)",
    r"not (?:forbidden|frozen|off[- ]limits|banned|required|needed) any ?more",
    r"(?:forget|drop|ignore|scrap) (?:about )?(?:the|that|what|my) (?:rule|ban|limit|part|bit|i"
    r" said)",
)
"""A permission, or a revoked rule."""

CHANGES: Final = CuePattern(
    r"instead|actually|now|no longer|any ?more|scratch that|forget|correction|chang(?:ed?|es|ing)",
    r"switch(?:ed|ing)?|mov(?:ed?|ing)|rais(?:ed?|ing)|lower(?:ed)?|bump(?:ed)?|increased?",
    r"decreased?|reduced?|renamed?|replaced?s?|rather|on second thoughts?|update[d:]?|revised?",
    r"make (?:it|that)|became|has become|new|from now on|from here on|going forward|extended?",
    r"jetzt|nun|nunmehr|ab sofort|stattdessen|geändert|nicht mehr|doch lieber|maintenant|désormais",
    r"dorénavant|plutôt|au lieu|changé|ahora|en lugar|en vez|ya no|cambiad[oa]|adesso|d'ora in poi",
    r"invece|agora|em vez|mudou|voortaan|teraz|zamiast|теперь|отныне|вместо|изменил\w*",
    r"الآن|أصبح(?:ت)?|بدلا|अब|बदल\w*",
)
"""A sentence that may replace an older one."""

REPLACES: Final = CuePattern(
    r"instead|scratch that|forget|correction|switch(?:ed|ing)?|mov(?:ed?|ing)|renamed?|replaced?s?",
    r"rather than|on second thoughts?|chang(?:ed?|es|ing)|no longer|any ?more|is now|are now",
    r"stattdessen|geändert|ab sofort|ab jetzt|désormais|dorénavant|au lieu|changé|en lugar|en vez",
    r"cambiad[oa]|d'ora in poi|invece|em vez|mudou|voortaan|zamiast|отныне|вместо|изменил\w*",
    r"أصبح(?:ت)?|بدلا",
)
"""The same, and so clear that names may replace each other, not only numbers."""

TASK_OPENS: Final = LatePattern(
    r"(?:todo|to do|to-do|fixme|action item|noch offen|à faire)\b|позже|(?:next(?: up| step)?"
    r"|remaining"
    r"|open(?: point| question| issue)?s?|follow-?up|pending|later|backlog):|afterwards?,|after"
    r" that,"
    r"|still (?:to do|open|missing|pending|need|have)\b|once (?:this|that|we|it|you"
    r"|all)\b[^,]{1,80},"
    r"|when (?:this|that|we're|you're|all)\b[^,]{0,60}\b(?:done|finished|through|ready)\b"
    r"|(?:tell|ask|notify|let) (?:me|us|\w+) .{1,80}?\b(?:before|once|when|after)\b"
)
"""The start of a sentence about open work."""

TASK: Final = CuePattern(
    r"add (?:to|on) (?:the|your|our) list|ping me|come back to|at some point|some ?day|remind me"
    r"|there(?:'s| is| are) still|(?:don't|do not) forget to|remember to|park (?:that|this)",
    r"still (?:has|have|need|needs|must) to|still (?:has|have|need|needs) \w+ing|remains to be",
    r"left to do|later (?:on )?(?:we|you|i)(?:'ll)? \w+",
    r"(?:we|you)(?:'ll| will) (?:also |still )?(?:need|have) to \w+ .{1,80}? (?:later|afterwards)",
    r"before (?:the|we) (?:release|ship|launch|deploy|merge)\w*, \w+",
)
"""Work that is still open."""

DONE: Final = LatePattern(
    r"^(?:done|finished|completed|closed|fixed|resolved|erledigt|fait|hecho|готово"
    r"|完成)\s*[:-]\s*(.+)"
)
"""A line that closes a task, and the text after the word."""

DECIDES: Final = CuePattern(
    r"decid(?:ed|e|ing)|decision|chose|chosen|opted|settled on|agreed (?:on|to|that)",
    r"(?:let's|let us|i'll|we'll|i will|we will|we) (?:go|going|went) with|going with",
    r"(?:we'll|we will|let's) (?:use|keep|stick|adopt|drop|skip|do|call|name|put)",
    r"the plan is|final answer|conclusion:|picked|wir nehmen|entschieden|on a décidé|decidimos",
    r"решили|决定|決めました",
)
"""A choice that somebody made."""

FAILS: Final = CuePattern(
    r"(?:did|does|do|would|could|will)(?:n't| not) work|won't work|not working",
    r"failed (?:because|since|due|with|when|again)|fails (?:because|since|when|with|again)",
    r"revert(?:ed|ing)|rolled back|roll(?:ing)? back|backed out|gave up|dead end|no luck",
    r"still (?:fails|failing|broken|crashes)|made (?:it|things) worse|turned out (?:to be )?wrong",
    r"tried .{1,120}? but|without success|to no avail|hat nicht funktioniert|n'a pas marché",
    r"no funcionó|не сработал\w*|失败了|うまくいきません",
)
"""A failed attempt, in somebody's own words."""

TURNS: Final = join_cues(LIFTS, TASK, DECIDES, FAILS)
"""Tells whether a sentence revokes a rule, or reports work, a choice or a failure: most do not."""

NAMES: Final = CuePattern(
    r"(?:is|are|was|were|be|it) (?:now )?(?:called|named|codenamed|known as)",
    r"(?:name|codename|alias|nickname|handle|username|hostname|branch|owner|contact) (?:is|=|:)",
    r"(?:ich heiße|je m'appelle|me llamo|меня зовут)",
)
"""A sentence that gives a name."""

NAMING: Final = (
    *("called", "named", "known as", "name ", "alias ", "handle ", "branch ", "owner ", "contact "),
    *("ich heiße", "m'appelle", "me llamo", "зовут"),
)
"""One of these is in every match of `NAMES`."""

FORBIDDING_HEADING: Final = CuePattern(
    r"no|not|never|avoid|don'?ts?|cannot|can't|mustn't|forbidden|prohibited|banned|off[- ]limits"
    r"|without|niemals|nicht|verboten|jamais|interdit|nunca|prohibido|нельзя|никогда"
)
RULE_HEADING: Final = CuePattern(
    r"rules?|constraints?|conventions?|guidelines?|requirements?|polic(?:y|ies)|restrictions?"
    r"|do'?s and don'?ts|preferences|principles|standards|please (?:observe|follow|note|remember)"
    r"|important|regeln?|vorgaben|règles?|reglas?|regol[ae]|regras?|zasad[ya]|правила|правило|limits"
    r"|规则|规矩|要求|ルール",
)
TASK_HEADING: Final = CuePattern(
    r"to-?do|to do|open (?:points?|tasks?|issues?)|next(?: steps?)?|remaining|still (?:open|to do)"
    r"|action items|backlog|follow-?ups?",
)

_DENYING_WORDS: Final = (
    "no not never none nothing nobody nowhere neither nor without cannot can't don't doesn't "
    "didn't won't wouldn't shouldn't isn't aren't wasn't weren't hasn't haven't hadn't couldn't "
    "mustn't needn't ain't cant dont doesnt didnt wont wouldnt shouldnt isnt arent wasnt hasnt "
    "havent couldnt nicht nichts kein keine keinen keinem keiner keines nie niemals niemand ohne "
    "pas jamais rien aucun aucune sans nunca nada nadie ning\u00fan ninguna sin tampoco "
    "n\u00e3o nem sem non mai niente senza niet geen nooit zonder "
    "\u043d\u0435 \u043d\u0435\u0442 \u043d\u0438\u043a\u043e\u0433\u0434\u0430 "
    "\u043d\u0438\u0447\u0435\u0433\u043e \u0431\u0435\u0437 \u043d\u0435\u043b\u044c\u0437\u044f "
    "\u0928\u0939\u0940\u0902 \u092e\u0924 \u092c\u093f\u0928\u093e "
    "\u0644\u0627 \u0644\u064a\u0633 \u0644\u0645 \u0644\u0646 \u0628\u062f\u0648\u0646"
)
DENYING: Final = frozenset(_DENYING_WORDS.split())
"""Words that deny, in languages with spaces: people use them for things they cannot or will not
do."""

DENYING_UNSPACED: Final = LatePattern(
    r"\u4e0d(?![\u8fc7\u904e\u9519\u932f\u5c11\u4ec5\u50c5\u540c])|\u6ca1(?![\u5173\u4e8b])|[\u522b\u52ff]"
    r"|\u306a\u3044|\u307e\u305b\u3093|\u306a\u304b\u3063\u305f"
)
"""The same for Chinese and Japanese."""

_SMALL_WORDS: Final = (
    "a an and are as at be been but by can do does for from has have i if in into is it its it's "
    "just let let's may me my of on or our please so that the their then there they this to us was "
    "we were when which will with you your must should shall always never only not no don't don "
    "now instead actually scratch forget correction change changed again keep use make sure ensure "
    "still need needs also than rather at most least more less any all every each longer anymore "
    "using used set go going update updated raise raised lower lowered bump bumped increase about "
    "increased decrease decreased reduce reduced move moved new said some would could like sorry "
    "want under over up down remember note today assistant second seconds minute minutes hour "
    "hours day days ms per percent"
)
TURNED: Final = CuePattern(
    r"ab (?:sofort|jetzt|nun|heute)|now|jetzt|nun|nunmehr|maintenant|désormais|dorénavant|ahora",
    r"adesso|d'ora in poi|agora|nu|voortaan|teraz|теперь|отныне|الآن|أصبح|أصبحت|अब",
)
"""Words that make a statement valid from now on: without them the sentence equals the earlier one
with another value."""

TURNED_UNSPACED: Final = LatePattern(
    r"现在|如今|目前|已经?|改成|改为|变成|变为|换成|更新为"
    r"|是|为|了"
)
"""The same in a script without spaces, and words for "is"."""

STOP: Final = frozenset(_SMALL_WORDS.split())
"""Words without meaning for the subject of a sentence, including units of time."""
