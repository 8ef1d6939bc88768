package delivery

import (
	"context"
	"errors"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

// TryRelay connects to a relay as deliveries do: with the same TLS, user name and password. It sends no email. The
// error says why a delivery through the relay would fail.
func TryRelay(ctx context.Context, r routing.Relay, hello string) error {
	o := smtpclient.Options{Hello: hello, TLS: relayMode(&r, false), Username: r.Username, Password: r.Password}
	c, err := smtpclient.Dial(ctx, r.Address, o)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.RetryPlain && ctx.Err() == nil {
		o.TLS = smtpclient.TLSNone
		c, err = smtpclient.Dial(ctx, r.Address, o)
	}
	if err != nil {
		return err
	}
	c.Close()
	return nil
}
