"""The headings of a summary, and the names that models use for them in their languages.

Other headings are read as well (`record`): their lines stand under `OTHER`, each after the
heading's own name, so that open work is never reported as done.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

OTHER: Final = "Also noted"
"""The section for lines under a heading that a model invented, or in an unknown language."""

SECTIONS: Final = (
    "Goal",
    "Done",
    "In progress",
    "Blocked",
    "Decisions and reasons",
    "Failed attempts",
    "Open questions",
    OTHER,
    "Next steps",
)
"""The headings of a summary, in writing order. Code carries the other items of the specification
(constraints, preferences, exact identifiers), never a model."""

ASKED: Final = tuple(section for section in SECTIONS if section != OTHER)
"""The headings that a model is asked for."""

CORE: Final = frozenset({"Goal", "Done", OTHER, "Next steps"})
"""A record without a line under one of these is useless for further work."""

LEAST_IMPORTANT: Final = (
    "Open questions",
    "Blocked",
    "Done",
    OTHER,
    "Failed attempts",
    "Decisions and reasons",
    "In progress",
    "Next steps",
    "Goal",
)
"""The order in which lines are left out if a record is over its budget. Failed attempts outlive
finished work: they keep a model from trying again."""

_CALLED: Final[Mapping[str, str]] = {
    "Goal": "goal;goals;objective;objectives;main goal;overall goal;task;purpose;ziel;ziele;aufgabe"
    ";objectif;objectifs;objetivo;objetivos;obiettivo;obiettivi;cel;doel;цель;цели;задача;目标"
    ";目的;任务;目標;목표;लक्ष्य;उद्देश्य;الهدف;الأهداف",
    "Done": "done;completed;finished;accomplished;what was done;work done;progress so far"
    ";completed steps;completed tasks;already done;erledigt;bereits erledigt;fertig;abgeschlossen"
    ";getan;fait;déjà fait;terminé;réalisé;accompli;hecho;completado;terminado;realizado;fatto"
    ";completato;feito;concluído;zrobione;ukończone;gedaan;сделано;выполнено;готово;已完成;完成"
    ";已做;已完成事项;完了;完了済み;済み;완료;완료됨;पूरा हुआ;हो गया"
    ";पूर्ण;किया गया;تم;ما تم;المنجز;تم إنجازه",
    "In progress": "in progress;ongoing;in-progress;current state;current status;current work"
    ";work in progress;in arbeit;laufend;aktueller stand;en cours;en curso;en progreso;in corso"
    ";em andamento;w toku;bezig;в работе;в процессе;进行中;当前状态;目前状态;進行中;作業中;진행 중"
    ";जारी;चल रहा है;قيد التنفيذ;جارٍ",
    "Blocked": "blocked;blockers;blocking;blocked by;blocking issues;blockiert;hindernisse;bloqué"
    ";blocages;bloqueado;bloqueos;bloccato;zablokowane;geblokkeerd;заблокировано;препятствия;受阻"
    ";阻塞;ブロック;차단됨;अवरुद्ध;रुका हुआ;عوائق",
    "Decisions and reasons": "decisions and reasons;decisions;decision;key decisions"
    ";decisions made;decisions & reasons;decisions and reasoning;decisions with reasons;decided"
    ";entscheidungen;entschieden;beschlüsse;entscheidungen und gründe;décisions;decisiones"
    ";decisioni;decisões;decyzje;beslissingen;решения;решено;决定;决策;決定;決定事項;결정;निर्णय"
    ";फ़ैसले;फैसले;القرارات;قرارات",
    "Failed attempts": "failed attempts;failures;failed;failed attempt;what failed"
    ";failed approaches;unsuccessful attempts;fehlgeschlagen;fehlversuche;gescheitert"
    ";gescheiterte versuche;échecs;tentatives échouées;intentos fallidos;fallos;fracasos"
    ";tentativi falliti;tentativas falhas;nieudane próby;mislukt;неудачи;неудачные попытки;失败"
    ";失败的尝试;失敗;失敗した試み;실패;실패한 시도;असफल प्रयास;विफल;المحاولات الفاشلة",
    "Open questions": "open questions;questions;question;open question;open issues"
    ";unresolved questions;unanswered questions;offene fragen;fragen;questions ouvertes"
    ";preguntas abiertas;preguntas;domande aperte;perguntas em aberto;otwarte pytania;open vragen"
    ";открытые вопросы;вопросы;未决问题;待解决问题;问题;未解決;質問;未解決の質問"
    ";미해결 질문;खुले प्रश्न;प्रश्न;सवाल;أسئلة مفتوحة;الأسئلة",
    "Next steps": "next steps;next;next step;to do;todo;to-do;todos;remaining;remaining work"
    ";remaining tasks;open tasks;pending;open;still open;open points;open items;not done"
    ";not yet done;outstanding;unfinished;left to do;action items;nächste schritte"
    ";nächster schritt;offen;noch offen;offene punkte;offene aufgaben;noch zu tun;zu tun;ausstehend"
    ";prochaines étapes;à faire;reste à faire;en suspens;próximos pasos;siguientes pasos;pendiente"
    ";pendientes;por hacer;prossimi passi;da fare;próximos passos;a fazer;pendentes"
    ";następne kroki;do zrobienia;pozostało;volgende stappen;nog te doen;следующие шаги;дальше"
    ";осталось;предстоит;не сделано;下一步;后续步骤;待办;待办事项;未完成;接下来"
    ";次のステップ;次の手順;残り;残りの作業;未対応;未完了;今後の予定;다음 단계;할 일;남은 작업"
    ";अगले कदम;अगला कदम;बाकी;बाकी काम;करना है;الخطوات التالية;المتبقي;ما تبقى",
    OTHER: "also noted",
}

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {name: section for section, names in _CALLED.items() for name in names.split(";")}
)
"""Models' names for the headings, in lower case."""

ELSEWHERE: Final = frozenset(
    {
        "constraints", "constraints and preferences", "preferences", "rules", "exact identifiers",
        "identifiers", "recorded elsewhere", "user constraints", "user preferences", "notes",
        "note", "summary", "record",
    }
)  # fmt: skip
"""Headings whose lines are dropped: code carries their content, or it is talk about the record."""
