package broadcasts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
)

// continueKind is the kind of job that continues the broadcasts that paused because of a sender's domain. The payload
// is the name of the domain, which the team may use again.
const continueKind = "broadcast.continue"

// lostKind is the kind of job that pauses the broadcasts whose sender's domain may no longer send. Such a job is
// enqueued only if the team has more broadcasts that are being sent than one transaction examines. The payload is the
// id of the last broadcast that was examined.
const lostKind = "broadcast.lost"

// isDomainFault reports whether a sender was refused because of its domain.
func isDomainFault(err error) bool {
	_, refused := domains.IsRefusedSender(err)
	return refused
}

// domainObstacle returns DomainNotVerified if the team may not send from one of the broadcast's domains at present, or
// "". Until the transaction ends, none of these domains can become able to send; see [domains.Service.LockStanding].
// The caller must have locked the broadcast.
func (s *Service) domainObstacle(ctx context.Context, tx *db.Tx, b *Broadcast) (Reason, error) {
	names, err := senderDomains(ctx, tx.Reader, b)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return DomainNotVerified, nil
	}
	for _, name := range names {
		standing, _, err := s.p.Domains.LockStanding(ctx, tx, b.TeamID, name)
		if err != nil {
			return "", fmt.Errorf("look up the sender's domain of broadcast %s: %w", b.ID, err)
		}
		if standing != domains.Usable {
			return DomainNotVerified, nil
		}
	}
	return "", nil
}

// senderDomains returns the domains of a broadcast's senders, sorted by name.
func senderDomains(ctx context.Context, r db.Reader, b *Broadcast) (names []string, err error) {
	variants, err := variantSenders(ctx, r, b.TeamID, b.ID)
	if err != nil {
		return nil, err
	}
	var contentIDs []string // of the contents that are sent, if the broadcast has started
	for _, v := range variants {
		if v.contentID != "" {
			contentIDs = append(contentIDs, v.contentID)
		} else if v.From != nil {
			names = append(names, domainOf(*v.From))
		}
	}
	if len(contentIDs) == 0 {
		contentIDs = []string{b.contentID}
	}
	for _, contentID := range contentIDs {
		from, err := content.Sender(ctx, r, b.TeamID, contentID)
		if err != nil {
			return nil, fmt.Errorf("read the sender of broadcast %s: %w", b.ID, err)
		}
		names = append(names, domainOf(from))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// domainOf returns the domain of a From field, whose display name may contain placeholders.
func domainOf(from string) string {
	if a, err := message.ParseFrom(from); err == nil {
		return a.Domain
	}
	return strings.ToLower(strings.Trim(from[strings.LastIndexByte(from, '@')+1:], "<> "))
}

// PauseForDomain pauses a broadcast that is being sent, if one of its senders' domains may not send. Package delivery
// calls PauseForDomain when it finds such a domain.
func (s *Service) PauseForDomain(ctx context.Context, teamID, broadcastID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if fault.KindOf(err) == fault.NotFound {
			return nil // its team is being erased
		}
		if err != nil || b.Status != Queued {
			return err
		}
		why, err := s.domainObstacle(ctx, tx, &b)
		if err != nil || why == "" {
			return err
		}
		s.pause(ctx, tx, &b, why)
		return s.notifyTeam(ctx, tx, &b)
	})
}

// OnDomainLost pauses the broadcasts of a team that are being sent from a domain. The caller takes the right to send
// from the domain in the same transaction. If the team has more broadcasts that are being sent than one transaction
// examines, a job examines the others.
func (s *Service) OnDomainLost(ctx context.Context, tx *db.Tx, teamID, name string) error {
	ids, err := sendingBroadcasts(ctx, tx.Reader, teamID, everyActor, "", stopMax)
	if err != nil {
		return fmt.Errorf("find the broadcasts of a domain that may no longer send: %w", err)
	}
	for _, broadcastID := range ids {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if fault.KindOf(err) == fault.NotFound {
			continue // the broadcast was erased after it was found
		}
		if err != nil {
			return err
		}
		names, err := senderDomains(ctx, tx.Reader, &b)
		if err != nil {
			return err
		}
		if b.Status != Queued || !slices.Contains(names, name) {
			continue
		}
		s.pause(ctx, tx, &b, DomainNotVerified)
		if err := s.notifyTeam(ctx, tx, &b); err != nil {
			return err
		}
	}
	if len(ids) == stopMax {
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: lostKind, Lane: teamID, TeamID: teamID, Payload: ids[stopMax-1]})
	}
	return nil
}

// pauseOthers handles jobs of the kind lostKind.
func (s *Service) pauseOthers(ctx context.Context, j jobs.Job) error {
	for after := j.Payload; ; {
		ids, err := sendingBroadcasts(ctx, s.p.DB.Reader, j.TeamID, everyActor, after, stopMax)
		if err != nil {
			return fmt.Errorf("find the broadcasts of a domain that may no longer send: %w", err)
		}
		for _, broadcastID := range ids {
			if err := s.PauseForDomain(ctx, j.TeamID, broadcastID); err != nil {
				return err
			}
		}
		if len(ids) < stopMax {
			return s.p.Queue.End(ctx, j)
		}
		after = ids[len(ids)-1]
	}
}

// OnDomainBack enqueues a job that continues the broadcasts that wait for a domain, if the team has such broadcasts.
// The caller has made the domain able to send in the same transaction.
func (s *Service) OnDomainBack(ctx context.Context, tx *db.Tx, teamID, name string) error {
	some, err := waitingForDomain(ctx, tx.Reader, teamID, "", 1)
	if err != nil || len(some) == 0 {
		return err
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: continueKind, Lane: teamID, TeamID: teamID, Payload: name})
	return nil
}

// continueAll handles jobs of the kind continueKind.
func (s *Service) continueAll(ctx context.Context, j jobs.Job) error {
	for after := ""; ; {
		ids, err := waitingForDomain(ctx, s.p.DB.Reader, j.TeamID, after, stopMax)
		if err != nil {
			return err
		}
		for _, broadcastID := range ids {
			if err := s.continueOne(ctx, j.TeamID, broadcastID, j.Payload); err != nil {
				return err
			}
		}
		if len(ids) < stopMax {
			return s.p.Queue.End(ctx, j)
		}
		after = ids[len(ids)-1]
	}
}

// continueOne continues a broadcast that waits for a domain. If another of its domains may still not send, the
// broadcast stays paused. If its sender may not send for another reason, the broadcast stays paused with that reason.
func (s *Service) continueOne(ctx context.Context, teamID, broadcastID, name string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		team, err := s.p.Teams.LockSenders(ctx, tx, teamID)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := lock(ctx, tx, teamID, broadcastID)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil || b.Status != Paused || b.Reason != DomainNotVerified {
			return err
		}
		names, err := senderDomains(ctx, tx.Reader, &b)
		if err != nil || !slices.Contains(names, name) {
			return err
		}
		if why, err := s.domainObstacle(ctx, tx, &b); err != nil || why != "" {
			return err
		}
		why, err := s.obstacleIn(ctx, tx.Reader, team, &b)
		if err != nil {
			return err
		}
		if why != "" {
			s.pause(ctx, tx, &b, why)
			return s.notifyTeam(ctx, tx, &b)
		}
		return s.resume(ctx, tx, &b)
	})
}
