package report

import "strings"

// vacationFields are header fields found in automatic replies that programs send on behalf of a person. Mail systems do
// not set these fields in bounces.
var vacationFields = []string{"X-Autoreply", "X-Autorespond", "X-Autoresponder", "X-Auto-Reply-From",
	"X-Mail-Autoreply", "X-Autoreply-From",
	"X-Vacation"}[:7:7]

// auto reports whether the message is an automatic reply.
func (m *mail) auto() bool {
	if m.autoSubmitted() || m.isReport("disposition-notification") {
		return true
	}
	for _, name := range append(vacationFields, "X-Auto-Response-Suppress") {
		if value := strings.ToLower(m.field(name)); value != "" && value != "no" && value != "none" {
			return true
		}
	}
	precedence := strings.ToLower(m.field("Precedence"))
	if strings.HasPrefix(precedence, "auto") || strings.EqualFold(m.field("X-Precedence"), "auto_reply") {
		return true
	}
	// The subject alone is not enough, because people also write about their vacations. The header must contain another
	// sign of an automatic reply.
	answers := len(m.InReplyTo) > 0 || len(m.References) > 0 || precedence == "bulk" || precedence == "junk" ||
		precedence == "list" ||
		m.byMachine()
	return answers && saysAway(m.Subject)
}

// saysAway reports whether a subject begins like that of an out-of-office reply in one of several languages.
func saysAway(subject string) bool {
	subject = strings.ToLower(strings.TrimSpace(subject))
	for _, start := range []string{
		"out of office", "out of the office", "automatic reply", "automated reply", "autoreply", "auto-reply", "auto reply",
		"auto response",
		"autoresponse", "auto-response", "automatic response", "vacation reply", "vacation message", "auto:", "ooo:",
		"away from",
		"automatische antwort", "abwesenheitsnotiz", "abwesenheit:", "abwesend:", "réponse automatique", "absence du bureau",
		"respuesta automática", "fuera de la oficina", "risposta automatica", "fuori sede", "resposta automática",
		"automatisch antwoord",
		"afwezigheidsbericht", "automatyczna odpowiedź", "autosvar", "automaattinen vastaus", "automatická odpověď",
		"automatikus válasz",
		"otomatik yanıt", "автоответ", "автоматический ответ", "自動応答", "自動返信", "自动回复", "自动答复", "자동 회신",
	} {
		if strings.HasPrefix(subject, start) {
			return true
		}
	}
	return false
}
