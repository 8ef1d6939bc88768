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
			f.Error, _ = strings.CutSuffix(f.Error, " GET /domains lists it.")
		}
	}
	if wrong > 0 {
		form.Problem = notDone + " One field needs a change."
		return status, nil
	}
	return status, nil
}

// parameterWords name the parameters of lists as the pages do.
var parameterWords = map[string]string{"q": "search", "from": "sender", "to": "recipient", "status": "state",
	"tag": "tag", "endpoint": "path", "method": "method", "origin": "reason"}

// searchProblem reports whether a search was refused, and says what is wrong with it. Labels may be given for
// parameters that this list names in another way.
func searchProblem(err error, labels ...string) (string, bool) {
	text, ok := refusedAsIs(err)
	words := parameterWords[fieldOf(err)]
	if len(labels) == 2 && labels[0] == fieldOf(err) {
		words = labels[1]
	}
	if words != "" {
		text = strings.Replace(text, "The `"+fieldOf(err)+"` parameter", "The "+words, 1)
	}
	return web.InWords("", text, nil), ok
}

// tick is a checkbox of a form.
type tick struct {
	Name, Label, Hint string
	On                bool
}
