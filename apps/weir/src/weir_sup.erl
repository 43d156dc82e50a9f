%% @private
-module(weir_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_listener_names:new_table(),
    Names = #{id => weir_listener_names, start => {weir_listener_names, start_link, []}},
    Listeners = #{
        id => weir_listener_sup, start => {weir_listener_sup, start_link, []}, type => supervisor, shutdown => infinity
    },
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, [Names, Listeners]}}.
