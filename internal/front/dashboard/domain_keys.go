package dashboard

import (
	"net/http"

	"github.com/postrider/postrider/internal/sending/domains"
)

// dkimKeyView is a DKIM key of a domain.
type dkimKeyView struct {
	domains.Key
	Label string // the algorithm
	Short string // the value of its record, shortened
	Shown string // the state
}

// algorithmLabels name the algorithms of DKIM keys.
var algorithmLabels = map[string]string{"rsa-sha256": "RSA", "ed25519-sha256": "Ed25519"}

// dkimKeysOf returns the DKIM keys of a domain that has signed with them, and what a rotation means for its owner.
func dkimKeysOf(s *domains.Setup) (all []dkimKeyView, text string) {
	signs := s.Domain.MaySend()
	for _, k := range s.Keys {
		v := dkimKeyView{Key: k, Label: algorithmLabels[k.Algorithm], Short: shorten(k.Value), Shown: "key_" + string(k.State)}
		if k.State == domains.KeyNext && !k.SeenAt.IsZero() {
			v.Shown = "key_found"
		}
		signs = signs || k.State != domains.KeySigning
		all = append(all, v)
	}
	if !signs {
		return nil, ""
	}
	text = "A rotation makes new keys and publishes their records. You need not do anything."
	if s.Domain.PublishesKeys() {
		text = "A rotation makes new keys and shows their records here. They sign after you have added the records."
	}
	return all, text
}

// rotateKeys begins a rotation of a domain's DKIM keys.
func (c *call) rotateKeys() error {
	_, err := c.Domains.RotateKeys(c.ctx(), c.team.TeamID, c.id(), c.form.Get("emergency") != "")
	if text, ok := refused(err); ok {
		return c.domainPage(http.StatusUnprocessableEntity, domainView{Refused: text})
	}
	if err != nil {
		return err
	}
	return c.redirect(domainPath(c.id()), "New DKIM keys were made.")
}
