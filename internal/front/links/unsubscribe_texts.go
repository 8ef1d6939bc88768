package links

import "golang.org/x/text/language"

// unsubscribeTexts holds the text of the unsubscribe pages in one language. The comment on a field names the value that
// replaces %s. To add a language, add its texts to unsubscribeLanguages.
type unsubscribeTexts struct {
	Heading   string // the team
	For       string // the address
	Choose    string
	All       string // the team
	AllHint   string
	Save      string
	LeaveOne  string // the topic
	LeaveAll  string // the team
	LeftOne   string // the topic
	LeftAll   string // the team
	Saved     string
	Unchanged string
	Undo      string
	Back      string
}

// unsubscribeLanguages lists the available languages. The first language is the default.
var unsubscribeLanguages = []struct {
	tag   language.Tag
	texts unsubscribeTexts
}{
	{language.English, unsubscribeTexts{
		Heading:   "Emails from %s",
		For:       "These settings are for %s.",
		Choose:    "What would you like to receive?",
		All:       "Unsubscribe from all emails of %s",
		AllHint:   "You may still receive messages that you need, such as receipts.",
		Save:      "Save",
		LeaveOne:  "Unsubscribe from “%s”",
		LeaveAll:  "Unsubscribe from all emails of %s",
		LeftOne:   "You are unsubscribed from “%s”",
		LeftAll:   "You are unsubscribed from all emails of %s",
		Saved:     "Your choice is saved",
		Unchanged: "Nothing has changed",
		Undo:      "Undo",
		Back:      "See all settings",
	}},
	{language.German, unsubscribeTexts{
		Heading:   "E-Mails von %s",
		For:       "Diese Einstellungen gelten für %s.",
		Choose:    "Was möchten Sie erhalten?",
		All:       "Alle E-Mails von %s abbestellen",
		AllHint:   "Nachrichten, die Sie brauchen, zum Beispiel Belege, können weiterhin kommen.",
		Save:      "Speichern",
		LeaveOne:  "„%s“ abbestellen",
		LeaveAll:  "Alle E-Mails von %s abbestellen",
		LeftOne:   "„%s“ ist abbestellt",
		LeftAll:   "Alle E-Mails von %s sind abbestellt",
		Saved:     "Ihre Auswahl ist gespeichert",
		Unchanged: "Es hat sich nichts geändert",
		Undo:      "Rückgängig machen",
		Back:      "Alle Einstellungen ansehen",
	}},
	{language.French, unsubscribeTexts{
		Heading:   "E-mails de %s",
		For:       "Ces préférences concernent %s.",
		Choose:    "Que souhaitez-vous recevoir ?",
		All:       "Me désabonner de tous les e-mails de %s",
		AllHint:   "Les messages dont vous avez besoin, comme les reçus, peuvent encore arriver.",
		Save:      "Enregistrer",
		LeaveOne:  "Me désabonner de « %s »",
		LeaveAll:  "Me désabonner de tous les e-mails de %s",
		LeftOne:   "Vous êtes désabonné de « %s »",
		LeftAll:   "Vous êtes désabonné de tous les e-mails de %s",
		Saved:     "Votre choix est enregistré",
		Unchanged: "Rien n’a changé",
		Undo:      "Annuler",
		Back:      "Voir toutes les préférences",
	}},
	{language.Spanish, unsubscribeTexts{
		Heading:   "Correos de %s",
		For:       "Estas preferencias son de %s.",
		Choose:    "¿Qué desea recibir?",
		All:       "Cancelar la suscripción a todos los correos de %s",
		AllHint:   "Los mensajes que necesita, como los recibos, pueden seguir llegando.",
		Save:      "Guardar",
		LeaveOne:  "Cancelar la suscripción a «%s»",
		LeaveAll:  "Cancelar la suscripción a todos los correos de %s",
		LeftOne:   "Ha cancelado la suscripción a «%s»",
		LeftAll:   "Ha cancelado la suscripción a todos los correos de %s",
		Saved:     "Su elección se ha guardado",
		Unchanged: "No ha cambiado nada",
		Undo:      "Deshacer",
		Back:      "Ver todas las preferencias",
	}},
}

// acceptMax is the maximum number of bytes read from the Accept-Language field.
const acceptMax = 512

var unsubscribeMatcher = func() language.Matcher {
	var tags []language.Tag
	for _, l := range unsubscribeLanguages {
		tags = append(tags, l.tag)
	}
	return language.NewMatcher(tags)
}()

// unsubscribeLanguage chooses the language of an unsubscribe page from an Accept-Language field (RFC 9110 section
// 12.5.4).
func unsubscribeLanguage(accept string) (lang string, texts *unsubscribeTexts) {
	// If the field is invalid, wanted is empty, and the matcher returns the first language.
	wanted, _, _ := language.ParseAcceptLanguage(accept[:min(len(accept), acceptMax)])
	_, i, _ := unsubscribeMatcher.Match(wanted...)
	l := &unsubscribeLanguages[i]
	return l.tag.String(), &l.texts
}
