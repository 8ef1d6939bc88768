package delivery

import (
	"bytes"
	"context"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/emails"
)

// capture stores a message in the outbox instead of sending it. The recipients of the message count as delivered.
func (s *Service) capture(ctx context.Context, o *emails.Outgoing, env smtpclient.Envelope,
	msg [][]byte) (outcome, error) {
	m, err := s.p.Outbox.Add(ctx, capture.Message{EmailID: o.ID, TeamID: o.TeamID, ReturnPath: env.From,
		Recipients: env.To, UTF8: env.UTF8}, bytes.Join(msg, nil))
	if err != nil {
		return outcome{}, err
	}
	a := answer{stage: smtpclient.StageFinal, reply: smtpclient.Reply{Code: 250, Enhanced: "2.0.0", Text: "captured as " +
		m.ID, Local: true}}
	return outcome{host: events.OutboxHost, answers: repeatAnswer(a, len(env.To)),
		conversation: "* kept in the outbox and not sent\n"}, nil
}
