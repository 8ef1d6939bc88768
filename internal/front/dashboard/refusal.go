package dashboard

import (
	"strings"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

// refuse shows an error in a form, and above it what was not done. It returns the error itself if the visitor cannot
// correct it.
func (c *call) refuse(form *web.Form, err error, notDone string) (status int, ours error) {
	if status, ours = form.SetError(err); ours != nil || fault.KindOf(err) == fault.NotFound ||
		fault.KindOf(err) == fault.Unavailable {
		return 0, err
	}
	wrong := 0
	for _, f := range form.Fields {
		if f.Error != "" {
			wrong++
			f.Error = inWords(f.Name, f.Error)
		}
	}
	if wrong > 0 {
		form.Problem = notDone + " One field needs a change."
		return status, nil
	}
	form.Problem = inWords("", form.Problem)
	return status, nil
}

// inWords changes the message of a fault, which names a field as the API does, into one that stands beside that field.
func inWords(field, message string) string {
	message = strings.Replace(message, "Missing `"+field+"` field.", "Enter a value.", 1)
	message = strings.Replace(message, "The `"+field+"` field must", "This must", 1)
	message, _ = strings.CutSuffix(message, " GET /domains lists it.")
	return strings.ReplaceAll(message, "`", "")
}

// parameterWords name the parameters of lists as the pages do.
var parameterWords = map[string]string{"q": "search", "from": "sender", "to": "recipient", "status": "state",
	"tag": "tag"}

// searchProblem reports whether a search was refused, and says what is wrong with it.
func searchProblem(err error) (string, bool) {
	text, ok := refused(err)
	if words := parameterWords[fieldOf(err)]; words != "" {
		text = strings.Replace(text, "The `"+fieldOf(err)+"` parameter", "The "+words, 1)
	}
	return strings.ReplaceAll(text, "`", ""), ok
}

// tick is a checkbox of a form.
type tick struct {
	Name, Label, Hint string
	On                bool
}
