%% @private
%% @doc Scripts for Redis: what has to be done in one step.
%%
%% A channel is a hash, `PREFIX:{NAME}:life', and a stream, `PREFIX:{NAME}:history', whose entries have the numbers of
%% the messages as ids. The hash has the epoch (`e'), the number of the latest message (`n'), and the run of Redis in
%% which that life began (`r'). A Redis that was restarted, or that replaced another one, may have lost messages and
%% would use their numbers again, so a life ends with the run. Subscribers get a gap.
-module(weir_pubsub_redis_scripts).

-export([all/0]).
-export([command/3]).

-type name() :: publish | position | delete.

%% How long the life of a channel is kept after its last use: a week, in milliseconds.
-define(LIFE_MS, "604800000").

%% The current life, or a new one with the epoch ARGV[2].
-define(LIFE, "
local life = redis.call('HMGET', KEYS[1], 'r', 'e', 'n')
local epoch, last = life[2], tonumber(life[3] or 0)
if life[1] ~= ARGV[1] then
  epoch, last = ARGV[2], 0
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'r', ARGV[1], 'e', epoch, 'n', 0)
end
redis.call('PEXPIRE', KEYS[1], " ?LIFE_MS ")
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
").

%% ARGV: run, epoch, topic, message, messages that are kept, milliseconds for which the stream lives.
publish() -> ?LIFE "
local number = string.format('%d', last + 1)
redis.call('HSET', KEYS[1], 'n', number)
local kept = 0
if ARGV[5] ~= '0' then
  redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[5], number .. '-0', 't', now, 'd', ARGV[4])
  if ARGV[6] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[6]) else redis.call('PERSIST', KEYS[2]) end
  kept = redis.call('XLEN', KEYS[2])
else
  redis.call('DEL', KEYS[2])
end
redis.call('PUBLISH', ARGV[3], 'm' .. epoch .. ' ' .. number .. ' ' .. ARGV[4])
return {epoch, number, kept}
".

%% ARGV: run, epoch of a new life, and the id from which messages are wanted: epoch and number.
position() -> ?LIFE "
local from = '-'
if epoch == ARGV[3] then from = ARGV[4] .. '-0' end
return {epoch, string.format('%d', last), now, redis.call('XRANGE', KEYS[2], from, '+')}
".

%% ARGV: run, not used, topic.
delete() -> "
local life = redis.call('HMGET', KEYS[1], 'r', 'e', 'n')
local kept = redis.call('XLEN', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2])
if life[1] ~= ARGV[1] then return false end
redis.call('PUBLISH', ARGV[3], 'd' .. life[2])
return {life[2], life[3], kept}
".

%% @doc Returns the commands that load the scripts.
-spec all() -> [iodata()].
all() -> [weir_pubsub_resp:command(["SCRIPT", "LOAD", text(Name)]) || Name <- [publish, position, delete]].

text(publish) -> publish();
text(position) -> position();
text(delete) -> delete().

%% @doc Returns the command that runs a script.
-spec command(name(), Keys :: [iodata()], [iodata() | integer()]) -> iodata().
command(Name, Keys, Arguments) ->
    weir_pubsub_resp:command(["EVALSHA", hash(Name), length(Keys) | Keys ++ Arguments]).

hash(Name) ->
    Key = {?MODULE, Name},
    case persistent_term:get(Key, none) of
        none ->
            Hash = string:lowercase(binary:encode_hex(crypto:hash(sha, text(Name)))),
            persistent_term:put(Key, Hash),
            Hash;
        Hash ->
            Hash
    end.
