package broadcasts

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

func checkName(name string) error {
	if utf8.RuneCountInString(name) > MaxName || !oneLine(name) {
		return fault.Invalidf("name", "The `name` field must have at most %d characters and no control characters.", MaxName)
	}
	return nil
}

func oneLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// check validates a text before it is stored. Field names in errors begin with the given prefix. The rules for sending
// are checked when the broadcast is sent.
func (t *Text) check(prefix string, maxSize int64) error {
	if err := checkMailbox(prefix+"from", t.From, message.ParseFrom); err != nil {
		return err
	}
	if len(t.ReplyTo) > emails.MaxRecipients {
		return fault.Invalidf("reply_to", "The `reply_to` field has %d addresses; the limit is %d.", len(t.ReplyTo),
			emails.MaxRecipients)
	}
	for _, address := range t.ReplyTo {
		if address == "" {
			return fault.Invalidf("reply_to", "The `reply_to` field has an empty address.")
		}
		if err := checkMailbox("reply_to", address, message.ParseAddress); err != nil {
			return err
		}
	}
	for _, line := range []struct {
		field, text string
		limit       int
	}{{prefix + "subject", t.Subject, content.MaxSubject}, {prefix + "preview_text", t.PreviewText, MaxPreview}} {
		if len(line.text) > line.limit {
			return fault.Invalidf(line.field, "The `%s` field has %d bytes; the limit is %d.", line.field, len(line.text),
				line.limit)
		}
		if !oneLine(line.text) {
			return fault.Invalidf(line.field, "The `%s` field must be UTF-8 text of one line.", line.field)
		}
	}
	size := 0
	for _, body := range []struct {
		field string
		text  *string
	}{{prefix + "html", t.HTML}, {prefix + "text", t.Plain}} {
		if body.text == nil {
			continue
		}
		size += len(*body.text)
		if strings.ContainsRune(*body.text, 0) {
			return fault.Invalidf(body.field, "The `%s` field must not contain NUL characters.", body.field)
		}
		if t := render.Compile(*body.text); t.Placeholders() > emails.MaxPlaceholders {
			return fault.Invalidf(body.field, "The `%s` field has %d placeholders; the limit is %d.", body.field,
				t.Placeholders(), emails.MaxPlaceholders)
		}
	}
	if int64(size) > maxSize {
		return fault.Invalidf(prefix+"html", "The `html` and `text` fields have %d bytes in all; the limit is %d.", size,
			maxSize)
	}
	return nil
}

// checkMailbox validates an address. An address with placeholders is not parsed, because placeholders are replaced only
// when an email is sent.
func checkMailbox(field, text string, parse func(string) (message.Address, error)) error {
	if len(text) > content.MaxMailbox {
		return fault.Invalidf(field, "Invalid `%s` field. The address is too long.", field)
	}
	if !oneLine(text) {
		return fault.Invalidf(field, "The `%s` field must be UTF-8 text of one line.", field)
	}
	if t := render.Compile(text); text == "" || !t.Fixed() {
		return nil
	}
	if _, err := parse(text); err != nil {
		return fault.Invalidf(field, "Invalid `%s` field: %s. Use `email@example.com` or `Name <email@example.com>`.", field,
			strings.TrimSuffix(err.Error(), ".")).Because(err)
	}
	return nil
}

// checkVariants validates the variants of an A/B test, which override parts of the broadcast's own text.
func (o *Options) checkVariants(t Text, variants []Variant, maxSize int64) error {
	if len(variants) == 0 {
		return nil
	}
	if len(variants) < 2 || len(variants) > MaxVariants {
		return fault.Invalidf("variants", "The `variants` field must have 2 to %d variants.", MaxVariants)
	}
	for i := range variants {
		v := &variants[i]
		if v.givenBits() == 0 && i > 0 {
			return fault.Invalidf("variants", "Only the first of the `variants` may be the broadcast itself: the variant %d "+
				"(from 0) names nothing that differs.", i)
		}
		for field, text := range map[string]*string{"from": v.From, "subject": v.Subject} {
			if text != nil && strings.TrimSpace(*text) == "" {
				field = fmt.Sprintf("variants[%d].%s", i, field)
				return fault.Invalidf(field, "The `%s` field is empty. Leave it out for that of the broadcast.", field)
			}
		}
		differs := v.apply(t)
		if err := differs.check(fmt.Sprintf("variants[%d].", i), maxSize); err != nil {
			return err
		}
	}
	return nil
}

// check validates the options and fills in the defaults for an A/B test.
func (o *Options) check(variants int) error {
	if o.Pace < 0 || o.Pace > MaxPace {
		return fault.Invalidf("pace", "The `pace` field must be 1 to %d recipients an hour, or 0 for no limit.", MaxPace)
	}
	percent := func(field string, v, least float64) error {
		if !(v >= least && v <= 100) {
			return fault.Invalidf(field, "The `%s` field must be a percentage from %g to 100.", field, least)
		}
		return nil
	}
	if !(o.HoldOut >= 0 && o.HoldOut <= 90) {
		return fault.Invalidf("hold_out", "The `hold_out` field must be a percentage from 0 to 90.")
	}
	for field, limit := range map[string]*float64{"bounce_limit": o.BounceLimit, "complaint_limit": o.ComplaintLimit} {
		if limit != nil {
			if err := percent(field, *limit, 0); err != nil {
				return err
			}
		}
	}
	if variants == 0 {
		if o.TestShare != 0 || o.Metric != "" || o.Wait != 0 {
			return fault.Invalidf("ab_test", "The `ab_test` field needs `variants`: 2 to %d of them.", MaxVariants)
		}
		return nil
	}
	if o.TestShare == 0 {
		o.TestShare = 100
	}
	if o.Metric == "" {
		o.Metric = ByOpens
	}
	if o.Wait == 0 && o.Metric != ByHand {
		o.Wait = 4 * 60
	}
	if err := percent("ab_test.share", o.TestShare, 1); err != nil {
		return err
	}
	if o.Metric != ByOpens && o.Metric != ByClicks && o.Metric != ByHand {
		return fault.Invalidf("ab_test.metric", "The `ab_test.metric` field must be `opens`, `clicks` or `manual`.")
	}
	if o.Wait < 0 || o.Wait > int64(maxWait.Minutes()) {
		return fault.Invalidf("ab_test.wait", "The `ab_test.wait` field must be 1 to %d minutes.", int64(maxWait.Minutes()))
	}
	return nil
}

// fromBit is the bit of the sender in the result of givenBits.
const fromBit = 1 << 0

// givenBits returns a bit set that says which fields a variant sets.
func (v *Variant) givenBits() (bits int) {
	for i, text := range []*string{v.From, v.Subject, v.PreviewText, v.HTML, v.Plain} {
		if text != nil {
			bits |= 1 << i
		}
	}
	return bits
}

// apply returns the broadcast's text, overridden by the fields that the variant sets. If the variant sets HTML but no
// plain text, the plain text is generated from the HTML.
func (v *Variant) apply(t Text) Text {
	for _, f := range []struct {
		to   *string
		text *string
	}{{v.From, &t.From}, {v.Subject, &t.Subject}, {v.PreviewText, &t.PreviewText}} {
		if f.to != nil {
			*f.text = *f.to
		}
	}
	if v.HTML != nil {
		t.HTML, t.Plain = v.HTML, nil
	}
	if v.Plain != nil {
		t.Plain = v.Plain
	}
	return t
}
